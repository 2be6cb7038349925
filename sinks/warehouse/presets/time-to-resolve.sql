-- How long episodes last, by subsystem and cause
SELECT subsystem,
       ifNull(cause, 'unknown') AS probable_cause,
       countIf(state = 'closed') AS closed,
       countIf(state != 'closed') AS open,
       round(avgOrNullIf(duration_s, state = 'closed')) AS mean_s,
       round(quantileExactOrNullIf(0.5)(duration_s, state = 'closed')) AS median_s,
       round(quantileExactOrNullIf(0.9)(duration_s, state = 'closed')) AS p90_s,
       round(maxOrNullIf(duration_s, state = 'closed')) AS longest_s
FROM anomalies
WHERE start >= {since:DateTime64(3, 'UTC')} AND start < {until:DateTime64(3, 'UTC')}
  AND ({host:String} = '' OR host = {host:String})
  AND ({subsystem:String} = '' OR subsystem = {subsystem:String})
GROUP BY subsystem, cause
ORDER BY mean_s DESC, subsystem, probable_cause
LIMIT {limit:UInt32}
