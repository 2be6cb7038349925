-- What a change did: metrics of hosts before and after a moment
-- The difference is told in standard deviations of the minutes before; only what moved is shown.
-- at =
-- minutes = 10
SELECT host, metric,
       round(avgIf(mean, minute < {at:DateTime64(3, 'UTC')}), 4) AS before,
       round(avgIf(mean, minute >= {at:DateTime64(3, 'UTC')}), 4) AS after,
       round((avgIf(mean, minute >= {at:DateTime64(3, 'UTC')}) - avgIf(mean, minute < {at:DateTime64(3, 'UTC')}))
             / greatest(stddevPopIf(mean, minute < {at:DateTime64(3, 'UTC')}), 0.01 * abs(avgIf(mean, minute < {at:DateTime64(3, 'UTC')})), 1e-9), 1) AS moved,
       countIf(minute < {at:DateTime64(3, 'UTC')}) AS minutes_before,
       countIf(minute >= {at:DateTime64(3, 'UTC')}) AS minutes_after
FROM telemetry_minute
WHERE minute >= toStartOfMinute({at:DateTime64(3, 'UTC')} - toIntervalMinute({minutes:UInt32}))
  AND minute < {at:DateTime64(3, 'UTC')} + toIntervalMinute({minutes:UInt32})
  AND ({host:String} = '' OR host = {host:String})
  AND ({subsystem:String} = '' OR subsystem = {subsystem:String})
GROUP BY host, metric
HAVING minutes_before > 1 AND minutes_after > 1 AND abs(moved) >= 3
ORDER BY abs(moved) DESC, host, metric
LIMIT {limit:UInt32}
