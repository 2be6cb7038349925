-- A metric by the hour
-- metric = cpu.busy_pct
SELECT host, hour, round(mean, 3) AS mean, round(min, 3) AS min, round(max, 3) AS max, batches AS seconds
FROM telemetry_hour
WHERE metric = {metric:String}
  AND hour >= toStartOfHour({since:DateTime64(3, 'UTC')}) AND hour < {until:DateTime64(3, 'UTC')}
  AND ({host:String} = '' OR host = {host:String})
ORDER BY host, hour
LIMIT {limit:UInt32}
