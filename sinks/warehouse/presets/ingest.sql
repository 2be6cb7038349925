-- What arrives: messages, rows and losses by subsystem
SELECT subsystem,
       uniqExact(host) AS hosts,
       sum(batch_count) AS messages,
       sum(row_count) AS telemetry_rows,
       sum(sample_count) AS metric_samples,
       round(messages / greatest(1, dateDiff('second', min(first_start), max(last_start)) + 1), 1) AS messages_per_s,
       sum(flawed_count) AS flawed,
       sum(session_dropped) AS dropped
FROM
(
    SELECT host, subsystem, session,
           count() AS batch_count, sum(metrics) AS row_count, sum(toUInt64(metrics) * samples) AS sample_count,
           min(start) AS first_start, max(start) AS last_start,
           countIf(notEmpty(flaws)) AS flawed_count, max(batches.dropped) AS session_dropped
    FROM batches
    WHERE start >= {since:DateTime64(3, 'UTC')} AND start < {until:DateTime64(3, 'UTC')}
      AND ({host:String} = '' OR host = {host:String})
      AND ({subsystem:String} = '' OR subsystem = {subsystem:String})
    GROUP BY host, subsystem, session
)
GROUP BY subsystem
ORDER BY subsystem
