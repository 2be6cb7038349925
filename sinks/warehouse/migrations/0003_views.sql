-- Views for people.

-- up
CREATE VIEW IF NOT EXISTS ${database}.anomalies ${on_cluster} AS
SELECT id, host, state, subsystem, start,
       dateDiff('millisecond', start, coalesce(closed, updated)) / 1000 AS duration_s,
       severity, peak_severity, peak, windows, votes, shares, cause, explanation, opened, updated, closed,
       model_version, revision
FROM ${database}.episodes_log
ORDER BY revision DESC, kafka_offset DESC
LIMIT 1 BY id;

CREATE VIEW IF NOT EXISTS ${database}.anomaly_evidence ${on_cluster} AS
SELECT evidence.episode AS id, evidence.host AS host, evidence.start AS start, evidence.rank AS rank,
       evidence.metric AS metric, evidence.subsystem AS subsystem, evidence.instance AS instance,
       evidence.feature AS feature, evidence.unit AS unit, evidence.observed AS observed,
       evidence.expected AS expected, evidence.deviation AS deviation,
       evidence.instance_observed AS instance_observed, evidence.instance_expected AS instance_expected
FROM ${database}.evidence_log AS evidence FINAL
INNER JOIN (SELECT id, max(revision) AS revision FROM ${database}.episodes_log GROUP BY id) AS last
    ON evidence.episode = last.id AND evidence.revision = last.revision
ORDER BY start, id, rank;

CREATE VIEW IF NOT EXISTS ${database}.fleet_health ${on_cluster} AS
SELECT seen.host AS host,
       multiIf(seen.silent_s > 15, 'silent', open.episodes > 0, 'anomalous', last.state = '', 'unscored', last.state)
           AS health,
       seen.last_seen AS last_seen,
       seen.silent_s AS silent_s,
       open.episodes AS open_episodes,
       open.subsystems AS subsystems,
       last.severity AS severity,
       last.coverage AS coverage,
       last.window_end AS last_window,
       last.model_version AS model_version,
       seen.agent AS agent,
       seen.dropped AS dropped
FROM
(
    SELECT host, max(log.seen) AS last_seen, greatest(0, dateDiff('second', last_seen, now('UTC'))) AS silent_s,
           argMax(log.agent, log.seen) AS agent, sum(log.dropped) AS dropped
    FROM ${database}.hosts_log AS log FINAL
    GROUP BY host
) AS seen
LEFT JOIN
(
    SELECT host, argMax(log.state, log.window_start) AS state, argMax(log.severity, log.window_start) AS severity,
           argMax(log.coverage, log.window_start) AS coverage, max(log.window_end) AS window_end,
           argMax(log.model_version, log.window_start) AS model_version
    FROM ${database}.verdicts_log AS log
    WHERE log.window_start > now('UTC') - INTERVAL 1 HOUR
    GROUP BY host
) AS last ON seen.host = last.host
LEFT JOIN
(
    SELECT host, count() AS episodes, groupUniqArray(subsystem) AS subsystems
    FROM ${database}.anomalies
    WHERE state != 'closed'
    GROUP BY host
) AS open ON seen.host = open.host
ORDER BY open_episodes DESC, silent_s DESC, host;

CREATE VIEW IF NOT EXISTS ${database}.host_timeline ${on_cluster} AS
SELECT host, ts, event, subsystem, severity, detail
FROM
(
    SELECT host, if(state = 'opened', opened, assumeNotNull(coalesce(closed, updated))) AS ts,
           concat('episode ', state) AS event, toString(subsystem) AS subsystem, severity,
           concat(id, if(cause IS NULL, '', concat(' ', assumeNotNull(cause))), ': ', explanation) AS detail
    FROM ${database}.episodes_log FINAL
    WHERE state != 'updated'
    UNION ALL
    SELECT host, window_end AS ts, 'anomalous window' AS event, ifNull(toString(subsystem), '') AS subsystem, severity,
           concat(toString(votes), ' votes: ', arrayStringConcat(voters, ', ')) AS detail
    FROM ${database}.verdicts_log FINAL
    WHERE anomalous
    UNION ALL
    SELECT host, min(log.start) AS ts, 'agent started' AS event, '' AS subsystem, 0. AS severity,
           concat('version ', any(log.agent), ', session ', log.session) AS detail
    FROM ${database}.batches_log AS log
    WHERE log.sequence = 0
    GROUP BY host, log.session
)
ORDER BY host, ts;

-- down
DROP VIEW IF EXISTS ${database}.host_timeline ${on_cluster};
DROP VIEW IF EXISTS ${database}.fleet_health ${on_cluster};
DROP VIEW IF EXISTS ${database}.anomaly_evidence ${on_cluster};
DROP VIEW IF EXISTS ${database}.anomalies ${on_cluster};
