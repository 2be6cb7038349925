-- What comes back on the same host
SELECT host, subsystem,
       ifNull(cause, 'unknown') AS probable_cause,
       count() AS times,
       uniqExact(toDate(start)) AS days,
       min(start) AS first_start,
       max(start) AS last_start,
       round(dateDiff('second', first_start, last_start) / (times - 1) / 3600, 1) AS hours_between
FROM anomalies
WHERE start >= {since:DateTime64(3, 'UTC')} AND start < {until:DateTime64(3, 'UTC')}
  AND ({host:String} = '' OR host = {host:String})
  AND ({subsystem:String} = '' OR subsystem = {subsystem:String})
GROUP BY host, subsystem, cause
HAVING times > 1
ORDER BY times DESC, host, subsystem, probable_cause
LIMIT {limit:UInt32}
