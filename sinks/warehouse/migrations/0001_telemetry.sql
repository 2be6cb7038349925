-- Telemetry a second, the batches it came in, and the hosts it came from.

-- up
CREATE TABLE IF NOT EXISTS ${database}.telemetry_log ${on_cluster}
(
    host      LowCardinality(String),
    subsystem LowCardinality(String),
    metric    LowCardinality(String),
    ts        DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Second of the first sample',
    offset_ms UInt16 CODEC(ZSTD(1)) COMMENT 'First sample after ts, ms: tells two batches of one second apart',
    mean      Float32 CODEC(ZSTD(1)) COMMENT 'Mean over samples and instances',
    min       Float32 CODEC(ZSTD(1)),
    max       Float32 CODEC(ZSTD(1)),
    spread    Float32 CODEC(ZSTD(1)) COMMENT 'Mean over samples of the standard deviation over instances',
    samples   UInt32 CODEC(ZSTD(1)) COMMENT 'Values behind the row: samples times instances, less the absent ones',
    stored    DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree
PARTITION BY toYYYYMMDD(ts)
PRIMARY KEY (host, metric, ts)
ORDER BY (host, metric, ts, offset_ms)
SETTINGS ttl_only_drop_parts = 1;

CREATE VIEW IF NOT EXISTS ${database}.telemetry ${on_cluster} AS
SELECT host, subsystem, metric, ts, offset_ms, mean, min, max, spread, samples
FROM ${database}.telemetry_log FINAL;

CREATE TABLE IF NOT EXISTS ${database}.batches_log ${on_cluster}
(
    host            LowCardinality(String),
    subsystem       LowCardinality(String),
    session         LowCardinality(String) COMMENT 'New at each start of the agent',
    sequence        UInt64 CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Counts the batches of a session; a gap is a loss',
    start           DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Time of the first sample',
    period_ms       UInt32 CODEC(ZSTD(1)),
    samples         UInt32 CODEC(ZSTD(1)) COMMENT 'Samples of each metric',
    metrics         UInt32 CODEC(ZSTD(1)) COMMENT 'Metrics the batch holds',
    dropped         UInt64 CODEC(ZSTD(1)) COMMENT 'Samples the agent lost since the session began',
    agent           LowCardinality(String) COMMENT 'Version of the agent',
    flaws           Array(String) CODEC(ZSTD(1)) COMMENT 'What had to be repaired to read it',
    kafka_partition Int32 CODEC(ZSTD(1)),
    kafka_offset    UInt64 CODEC(DoubleDelta, ZSTD(1)),
    stored          DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree
PARTITION BY toYYYYMMDD(start)
ORDER BY (host, subsystem, session, sequence, start)
SETTINGS ttl_only_drop_parts = 1;

CREATE VIEW IF NOT EXISTS ${database}.batches ${on_cluster} AS
SELECT host, subsystem, session, sequence, start, period_ms, samples, metrics, dropped, agent, flaws,
       kafka_partition, kafka_offset
FROM ${database}.batches_log FINAL;

CREATE TABLE IF NOT EXISTS ${database}.hosts_log ${on_cluster}
(
    host      LowCardinality(String),
    subsystem LowCardinality(String),
    seen      DateTime64(3, 'UTC') COMMENT 'End of the last batch',
    agent     LowCardinality(String),
    session   String,
    sequence  UInt64,
    dropped   UInt64,
    period_ms UInt32,
    instances Map(LowCardinality(String), Array(String)) COMMENT 'Names of the instances of each dimension but host',
    stored    DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(seen)
ORDER BY (host, subsystem);

CREATE VIEW IF NOT EXISTS ${database}.hosts ${on_cluster} AS
SELECT host,
       max(log.seen) AS last_seen,
       argMax(log.agent, log.seen) AS agent,
       argMax(log.session, log.seen) AS session,
       mapFromArrays(groupArray(log.subsystem), groupArray(log.sequence)) AS sequences,
       sum(log.dropped) AS dropped,
       argMax(log.period_ms, log.seen) AS period_ms,
       mapFromArrays(groupArrayArray(mapKeys(log.instances)), groupArrayArray(mapValues(log.instances))) AS instances
FROM ${database}.hosts_log AS log FINAL
GROUP BY host;

-- down
DROP VIEW IF EXISTS ${database}.hosts ${on_cluster};
DROP TABLE IF EXISTS ${database}.hosts_log ${on_cluster};
DROP VIEW IF EXISTS ${database}.batches ${on_cluster};
DROP TABLE IF EXISTS ${database}.batches_log ${on_cluster};
DROP VIEW IF EXISTS ${database}.telemetry ${on_cluster};
DROP TABLE IF EXISTS ${database}.telemetry_log ${on_cluster};
