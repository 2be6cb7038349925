-- Telemetry a minute and an hour.
--
-- No materialised view feeds them: it sees what is inserted, and what is inserted twice it would count twice. The sink
-- computes them from `telemetry`, which holds each thing once, for the hosts and minutes that batches came for. A row
-- is a pure function of what it sums up, so to compute it again, also twice at a time, changes nothing; of two that
-- differ the one with more samples counts, so that a straggler never replaces a whole minute whose seconds have gone.

-- up
ALTER TABLE ${database}.batches_log ${on_cluster}
    ADD INDEX IF NOT EXISTS stored_range stored TYPE minmax GRANULARITY 1;

CREATE TABLE IF NOT EXISTS ${database}.telemetry_minute_log ${on_cluster}
(
    host      LowCardinality(String),
    subsystem LowCardinality(String),
    metric    LowCardinality(String),
    minute    DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    mean      Float32 CODEC(Delta, ZSTD(1)) COMMENT 'Mean over samples and instances',
    min       Float32 CODEC(Delta, ZSTD(1)),
    max       Float32 CODEC(Delta, ZSTD(1)),
    spread    Float32 CODEC(Delta, ZSTD(1)) COMMENT 'Mean over samples of the standard deviation over instances',
    samples   UInt64 CODEC(ZSTD(1)) COMMENT 'Values behind the row',
    batches   UInt32 CODEC(ZSTD(1)) COMMENT 'Rows a second behind the row',
    stored    DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(samples)
PARTITION BY toYYYYMMDD(minute)
ORDER BY (host, metric, minute)
SETTINGS ttl_only_drop_parts = 1;

CREATE VIEW IF NOT EXISTS ${database}.telemetry_minute ${on_cluster} AS
SELECT host, subsystem, metric, minute, mean, min, max, spread, samples, batches
FROM ${database}.telemetry_minute_log FINAL;

CREATE TABLE IF NOT EXISTS ${database}.telemetry_hour_log ${on_cluster}
(
    host      LowCardinality(String),
    subsystem LowCardinality(String),
    metric    LowCardinality(String),
    hour      DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    mean      Float32 CODEC(Delta, ZSTD(1)) COMMENT 'Mean over samples and instances',
    min       Float32 CODEC(Delta, ZSTD(1)),
    max       Float32 CODEC(Delta, ZSTD(1)),
    spread    Float32 CODEC(Delta, ZSTD(1)) COMMENT 'Mean over samples of the standard deviation over instances',
    samples   UInt64 CODEC(ZSTD(1)) COMMENT 'Values behind the row',
    batches   UInt32 CODEC(ZSTD(1)) COMMENT 'Rows a second behind the row',
    stored    DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(samples)
PARTITION BY toYYYYMM(hour)
ORDER BY (host, metric, hour)
SETTINGS ttl_only_drop_parts = 1;

CREATE VIEW IF NOT EXISTS ${database}.telemetry_hour ${on_cluster} AS
SELECT host, subsystem, metric, hour, mean, min, max, spread, samples, batches
FROM ${database}.telemetry_hour_log FINAL;

CREATE TABLE IF NOT EXISTS ${database}.rollups_log ${on_cluster}
(
    name    LowCardinality(String) COMMENT 'minute or hour',
    through DateTime('UTC') COMMENT 'What was stored before is summed up'
)
ENGINE = ${replicated}ReplacingMergeTree(through)
ORDER BY name;

-- down
DROP TABLE IF EXISTS ${database}.rollups_log ${on_cluster};
DROP VIEW IF EXISTS ${database}.telemetry_hour ${on_cluster};
DROP TABLE IF EXISTS ${database}.telemetry_hour_log ${on_cluster};
DROP VIEW IF EXISTS ${database}.telemetry_minute ${on_cluster};
DROP TABLE IF EXISTS ${database}.telemetry_minute_log ${on_cluster};
ALTER TABLE ${database}.batches_log ${on_cluster}
    DROP INDEX IF EXISTS stored_range;
