-- Episodes, the latest first
SELECT id, host, start, round(duration_s) AS duration_s, state, subsystem, cause,
       round(peak_severity, 1) AS peak_severity, explanation
FROM anomalies
WHERE start >= {since:DateTime64(3, 'UTC')} AND start < {until:DateTime64(3, 'UTC')}
  AND ({host:String} = '' OR host = {host:String})
  AND ({subsystem:String} = '' OR subsystem = {subsystem:String})
ORDER BY start DESC, host
LIMIT {limit:UInt32}
