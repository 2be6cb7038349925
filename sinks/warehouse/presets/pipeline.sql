-- The pipeline itself: windows a second, their state, and how late their verdicts could be read
-- `late` is from the end of a window to its row in ClickHouse. A replay of old telemetry is late by its age.
SELECT toStartOfHour(window_start) AS hour,
       uniqExact(host) AS hosts,
       count() AS windows,
       round(windows / greatest(1, dateDiff('second', min(window_start), max(window_end))), 1) AS windows_per_s,
       round(100 * countIf(state = 'scored') / windows, 1) AS scored_pct,
       countIf(anomalous) AS anomalous_windows,
       round(avg(coverage), 3) AS mean_coverage,
       round(quantileExact(0.5)(dateDiff('millisecond', window_end, stored)) / 1000, 2) AS p50_late_s,
       round(quantileExact(0.99)(dateDiff('millisecond', window_end, stored)) / 1000, 2) AS p99_late_s
FROM verdicts
WHERE window_start >= {since:DateTime64(3, 'UTC')} AND window_start < {until:DateTime64(3, 'UTC')}
  AND ({host:String} = '' OR host = {host:String})
GROUP BY hour
ORDER BY hour
LIMIT {limit:UInt32}
