-- The hosts on which a metric is highest
-- metric = cpu.busy_pct
SELECT host, round(sum(mean * samples) / sum(samples), 3) AS mean, round(max(max), 3) AS max, count() AS minutes
FROM telemetry_minute
WHERE metric = {metric:String}
  AND minute >= toStartOfMinute({since:DateTime64(3, 'UTC')}) AND minute < {until:DateTime64(3, 'UTC')}
  AND ({host:String} = '' OR host = {host:String})
GROUP BY host
ORDER BY mean DESC, host
LIMIT {limit:UInt32}
