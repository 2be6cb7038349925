-- Over how many hosts the same anomaly goes
-- Many hosts within a short time speak for what they share: a switch, a job, an update.
SELECT subsystem,
       ifNull(cause, 'unknown') AS probable_cause,
       uniqExact(host) AS hosts,
       count() AS episodes,
       min(start) AS first_start,
       max(start) AS last_start,
       round(avg(duration_s)) AS mean_s,
       arraySort(groupUniqArray(5)(host)) AS some_hosts
FROM anomalies
WHERE start >= {since:DateTime64(3, 'UTC')} AND start < {until:DateTime64(3, 'UTC')}
  AND ({host:String} = '' OR host = {host:String})
  AND ({subsystem:String} = '' OR subsystem = {subsystem:String})
GROUP BY subsystem, cause
ORDER BY hosts DESC, episodes DESC, subsystem, probable_cause
LIMIT {limit:UInt32}
