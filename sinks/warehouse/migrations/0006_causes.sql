-- Probable causes with what to do about them, and evidence with direction and date.

-- up
ALTER TABLE ${database}.episodes_log ${on_cluster}
    ADD COLUMN IF NOT EXISTS confidence Float64 COMMENT 'How well the episode fits the cause, 0 to 1' AFTER cause,
    ADD COLUMN IF NOT EXISTS candidates Map(LowCardinality(String), Float64) COMMENT 'All causes that fit, with their confidence' AFTER confidence,
    ADD COLUMN IF NOT EXISTS checks Array(String) COMMENT 'Commands that tell whether the cause is right' AFTER explanation,
    ADD COLUMN IF NOT EXISTS remedy String COMMENT 'What to do about the cause' AFTER checks;

ALTER TABLE ${database}.evidence_log ${on_cluster}
    ADD COLUMN IF NOT EXISTS direction LowCardinality(String) COMMENT 'up or down' AFTER instance_expected,
    ADD COLUMN IF NOT EXISTS since Nullable(DateTime64(3, 'UTC')) COMMENT 'First second in which the metric was strange in this episode' AFTER direction,
    ADD COLUMN IF NOT EXISTS contribution Float64 COMMENT 'Share of the metric in what the detectors found strange' AFTER since;

DROP VIEW IF EXISTS ${database}.episodes ${on_cluster};

CREATE VIEW IF NOT EXISTS ${database}.episodes ${on_cluster} AS
SELECT id, revision, host, state, start, opened, updated, closed, subsystem, shares, windows, votes, severity,
       peak_severity, peak, model_version, cause, confidence, candidates, explanation, checks, remedy,
       kafka_partition, kafka_offset, stored
FROM ${database}.episodes_log FINAL;

DROP VIEW IF EXISTS ${database}.evidence ${on_cluster};

CREATE VIEW IF NOT EXISTS ${database}.evidence ${on_cluster} AS
SELECT episode, revision, rank, host, start, metric, subsystem, instance, feature, unit, observed, expected, deviation,
       direction, since, contribution, instance_observed, instance_expected, kafka_partition, kafka_offset, stored
FROM ${database}.evidence_log FINAL;

DROP VIEW IF EXISTS ${database}.anomalies ${on_cluster};

CREATE VIEW IF NOT EXISTS ${database}.anomalies ${on_cluster} AS
SELECT id, host, state, subsystem, start,
       dateDiff('millisecond', start, coalesce(closed, updated)) / 1000 AS duration_s,
       severity, peak_severity, peak, windows, votes, shares, cause, confidence, candidates, explanation, checks,
       remedy, opened, updated, closed, model_version, revision
FROM ${database}.episodes_log
ORDER BY revision DESC, kafka_offset DESC
LIMIT 1 BY id;

DROP VIEW IF EXISTS ${database}.anomaly_evidence ${on_cluster};

CREATE VIEW IF NOT EXISTS ${database}.anomaly_evidence ${on_cluster} AS
SELECT evidence.episode AS id, evidence.host AS host, evidence.start AS start, evidence.rank AS rank,
       evidence.metric AS metric, evidence.subsystem AS subsystem, evidence.instance AS instance,
       evidence.feature AS feature, evidence.unit AS unit, evidence.observed AS observed,
       evidence.expected AS expected, evidence.deviation AS deviation, evidence.direction AS direction,
       evidence.since AS since, evidence.contribution AS contribution,
       evidence.instance_observed AS instance_observed, evidence.instance_expected AS instance_expected
FROM ${database}.evidence_log AS evidence FINAL
INNER JOIN (SELECT id, max(revision) AS revision FROM ${database}.episodes_log GROUP BY id) AS last
    ON evidence.episode = last.id AND evidence.revision = last.revision
ORDER BY start, id, rank;

-- down
DROP VIEW IF EXISTS ${database}.anomaly_evidence ${on_cluster};

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

DROP VIEW IF EXISTS ${database}.anomalies ${on_cluster};

CREATE VIEW IF NOT EXISTS ${database}.anomalies ${on_cluster} AS
SELECT id, host, state, subsystem, start,
       dateDiff('millisecond', start, coalesce(closed, updated)) / 1000 AS duration_s,
       severity, peak_severity, peak, windows, votes, shares, cause, explanation, opened, updated, closed,
       model_version, revision
FROM ${database}.episodes_log
ORDER BY revision DESC, kafka_offset DESC
LIMIT 1 BY id;

DROP VIEW IF EXISTS ${database}.evidence ${on_cluster};

CREATE VIEW IF NOT EXISTS ${database}.evidence ${on_cluster} AS
SELECT episode, revision, rank, host, start, metric, subsystem, instance, feature, unit, observed, expected, deviation,
       instance_observed, instance_expected, kafka_partition, kafka_offset, stored
FROM ${database}.evidence_log FINAL;

DROP VIEW IF EXISTS ${database}.episodes ${on_cluster};

CREATE VIEW IF NOT EXISTS ${database}.episodes ${on_cluster} AS
SELECT id, revision, host, state, start, opened, updated, closed, subsystem, shares, windows, votes, severity,
       peak_severity, peak, model_version, cause, explanation, kafka_partition, kafka_offset, stored
FROM ${database}.episodes_log FINAL;

ALTER TABLE ${database}.evidence_log ${on_cluster}
    DROP COLUMN IF EXISTS direction, DROP COLUMN IF EXISTS since, DROP COLUMN IF EXISTS contribution;

ALTER TABLE ${database}.episodes_log ${on_cluster}
    DROP COLUMN IF EXISTS confidence, DROP COLUMN IF EXISTS candidates, DROP COLUMN IF EXISTS checks,
    DROP COLUMN IF EXISTS remedy;
