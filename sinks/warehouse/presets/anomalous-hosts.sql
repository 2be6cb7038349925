-- The hosts with most time in episodes
SELECT host,
       count() AS episodes,
       round(sum(duration_s)) AS anomalous_s,
       round(max(peak_severity), 1) AS worst,
       countIf(state != 'closed') AS open,
       topK(3)(subsystem) AS subsystems,
       max(start) AS last_start
FROM anomalies
WHERE start >= {since:DateTime64(3, 'UTC')} AND start < {until:DateTime64(3, 'UTC')}
  AND ({host:String} = '' OR host = {host:String})
  AND ({subsystem:String} = '' OR subsystem = {subsystem:String})
GROUP BY host
ORDER BY anomalous_s DESC, host
LIMIT {limit:UInt32}
