-- Which metrics are strange first, and how often they are the strongest evidence
SELECT metric, subsystem,
       uniqExact(id) AS episodes,
       countIf(since = first) AS first_of_all,
       countIf(rank = 1) AS strongest,
       round(avg(dateDiff('millisecond', start, since)) / 1000, 1) AS mean_s_after_start,
       round(100 * avg(contribution), 1) AS mean_contribution_pct
FROM
(
    SELECT *, min(since) OVER (PARTITION BY id) AS first
    FROM anomaly_evidence
    WHERE start >= {since:DateTime64(3, 'UTC')} AND start < {until:DateTime64(3, 'UTC')}
      AND ({host:String} = '' OR host = {host:String})
)
WHERE since IS NOT NULL AND ({subsystem:String} = '' OR subsystem = {subsystem:String})
GROUP BY metric, subsystem
ORDER BY first_of_all DESC, strongest DESC, metric
LIMIT {limit:UInt32}
