-- What was made of episodes: alerts with all their states, every try to tell somebody, and what people said of them.

-- up
CREATE TABLE IF NOT EXISTS ${database}.alerts_log ${on_cluster}
(
    key             String COMMENT 'The same for the same kind of trouble in the same place, however often it comes back',
    id              String COMMENT 'The key in 12 characters',
    revision        Int64 COMMENT 'Grows with each state of the key',
    state           LowCardinality(String) COMMENT 'firing, updated, acknowledged, silenced, resolved or expired',
    scope           LowCardinality(String) COMMENT 'host, label, cause or fleet',
    group           String COMMENT 'What a group alert is about; empty for a host',
    parent          Nullable(String) COMMENT 'Key of the group alert that is told instead',
    host            LowCardinality(String) COMMENT 'Empty for a group',
    hosts           Array(String) COMMENT 'Hosts that are affected in this state, at most 200',
    host_count      UInt32 COMMENT 'How many are affected in this state',
    labels          Map(LowCardinality(String), String),
    subsystem       LowCardinality(String),
    cause           LowCardinality(Nullable(String)),
    severity        LowCardinality(String) COMMENT 'info, warning or critical',
    peak_severity   Float64,
    since           DateTime64(3, 'UTC') COMMENT 'First strange second',
    updated         DateTime64(3, 'UTC') COMMENT 'Up to when its episodes are known',
    resolved        Nullable(DateTime64(3, 'UTC')) COMMENT 'When it was over',
    time            DateTime64(3, 'UTC') COMMENT 'When this state was decided',
    episodes        Array(String) COMMENT 'The newest, at most 20',
    summary         String,
    receivers       Array(LowCardinality(String)) COMMENT 'Who is told of it',
    reason          String COMMENT 'Why it is silenced, expired or acknowledged',
    kafka_partition Int32,
    kafka_offset    UInt64,
    stored          DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(kafka_offset)
PARTITION BY toYYYYMM(time)
ORDER BY (key, revision, time);

CREATE VIEW IF NOT EXISTS ${database}.alerts ${on_cluster} AS
SELECT key, id, revision, state, scope, group, parent, host, hosts, host_count, labels, subsystem, cause, severity,
       peak_severity, since, updated, resolved, time, episodes, summary, receivers, reason, kafka_partition, kafka_offset,
       stored
FROM ${database}.alerts_log FINAL;

CREATE VIEW IF NOT EXISTS ${database}.alerts_now ${on_cluster} AS
SELECT key, id, state, scope, group, parent, host, host_count, labels, subsystem, cause, severity, peak_severity, since,
       updated, resolved, time, episodes, summary, receivers, reason, revision
FROM ${database}.alerts_log
ORDER BY revision DESC, kafka_offset DESC
LIMIT 1 BY key;

CREATE TABLE IF NOT EXISTS ${database}.deliveries_log ${on_cluster}
(
    id              String COMMENT 'Of the notification; the same for each try of it',
    attempt         Int32 COMMENT 'Counts the tries from 1',
    time            DateTime64(3, 'UTC') COMMENT 'When the try ended',
    receiver        LowCardinality(String),
    channel         LowCardinality(String),
    status          LowCardinality(String) COMMENT 'delivered, failed (it is tried again) or refused (it is not)',
    code            Nullable(Int32) COMMENT 'HTTP or SMTP status',
    latency_ms      Float64,
    error           String,
    alert           String COMMENT 'Key of the first alert in it',
    state           LowCardinality(String) COMMENT 'State of that alert',
    revision        Int64 COMMENT 'Revision of that alert',
    alerts          Array(String) COMMENT 'Keys of all alerts in it, at most 200',
    count           UInt32 COMMENT 'Number of alerts in it',
    digest          Bool COMMENT 'Whether it sums up what the rate limit held back',
    kafka_partition Int32,
    kafka_offset    UInt64,
    stored          DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(kafka_offset)
PARTITION BY toYYYYMM(time)
ORDER BY (receiver, time, id, attempt);

CREATE VIEW IF NOT EXISTS ${database}.deliveries ${on_cluster} AS
SELECT id, attempt, time, receiver, channel, status, code, latency_ms, error, alert, state, revision, alerts, count,
       digest, kafka_partition, kafka_offset, stored
FROM ${database}.deliveries_log FINAL;

CREATE TABLE IF NOT EXISTS ${database}.feedback_log ${on_cluster}
(
    id              String,
    time            DateTime64(3, 'UTC') COMMENT 'When it was said',
    alert           String COMMENT 'Key of the alert',
    host            LowCardinality(String) COMMENT 'Empty for a group',
    subsystem       LowCardinality(String),
    cause           LowCardinality(Nullable(String)),
    episode         String COMMENT 'The newest of the alert',
    verdict         LowCardinality(String) COMMENT 'true, false or expected',
    until           Nullable(DateTime64(3, 'UTC')) COMMENT 'Of expected: until when the same is not told again',
    by              String,
    note            String,
    kafka_partition Int32,
    kafka_offset    UInt64,
    stored          DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(kafka_offset)
ORDER BY (id, time);

CREATE VIEW IF NOT EXISTS ${database}.feedback ${on_cluster} AS
SELECT id, time, alert, host, subsystem, cause, episode, verdict, until, by, note, kafka_partition, kafka_offset, stored
FROM ${database}.feedback_log FINAL;

-- down
DROP VIEW IF EXISTS ${database}.feedback ${on_cluster};
DROP TABLE IF EXISTS ${database}.feedback_log ${on_cluster};
DROP VIEW IF EXISTS ${database}.deliveries ${on_cluster};
DROP TABLE IF EXISTS ${database}.deliveries_log ${on_cluster};
DROP VIEW IF EXISTS ${database}.alerts_now ${on_cluster};
DROP VIEW IF EXISTS ${database}.alerts ${on_cluster};
DROP TABLE IF EXISTS ${database}.alerts_log ${on_cluster};
