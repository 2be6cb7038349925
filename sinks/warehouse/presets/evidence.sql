-- What speaks for an episode, strongest first
-- episode =
SELECT rank, metric, instance, feature, direction, observed, expected, unit,
       round(deviation, 1) AS deviation, round(100 * contribution, 1) AS contribution_pct, since AS strange_since
FROM anomaly_evidence
WHERE startsWith(id, {episode:String})
ORDER BY start DESC, rank
LIMIT {limit:UInt32}
