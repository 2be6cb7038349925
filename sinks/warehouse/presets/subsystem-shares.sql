-- How much of the anomalous time each subsystem had a share in, by day
-- An episode of 100 s that is 70 % cpu and 30 % memory counts 70 s for cpu and 30 s for memory.
SELECT toDate(start) AS day,
       share.1 AS subsystem,
       round(sum(share.2 * duration_s)) AS anomalous_s,
       round(100 * anomalous_s / sum(anomalous_s) OVER (PARTITION BY day), 1) AS share_pct,
       count() AS episodes
FROM anomalies
ARRAY JOIN arrayZip(mapKeys(shares), mapValues(shares)) AS share
WHERE start >= {since:DateTime64(3, 'UTC')} AND start < {until:DateTime64(3, 'UTC')}
  AND ({host:String} = '' OR host = {host:String})
  AND share.2 > 0
GROUP BY day, share.1
HAVING {subsystem:String} = '' OR subsystem = {subsystem:String}
ORDER BY day, anomalous_s DESC, subsystem
