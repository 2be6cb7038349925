-- Every sample of the minutes around an episode, copied from the topics while these still hold them.

-- up
CREATE TABLE IF NOT EXISTS ${database}.episode_samples_log ${on_cluster}
(
    episode   String CODEC(ZSTD(1)),
    host      LowCardinality(String),
    subsystem LowCardinality(String),
    metric    LowCardinality(String),
    instance  LowCardinality(String) COMMENT 'Empty for a metric of the host',
    begin     DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Time of the first sample',
    period_ms UInt32 CODEC(ZSTD(1)),
    samples   Array(Float32) CODEC(ZSTD(1)) COMMENT 'In order of time; NaN where there was none',
    stored    DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree
PARTITION BY toYYYYMMDD(begin)
ORDER BY (episode, metric, instance, begin)
SETTINGS ttl_only_drop_parts = 1;

CREATE VIEW IF NOT EXISTS ${database}.episode_samples ${on_cluster} AS
SELECT episode, host, subsystem, metric, instance,
       addMilliseconds(begin, period_ms * (place - 1)) AS ts, sample AS value
FROM ${database}.episode_samples_log FINAL
ARRAY JOIN samples AS sample, arrayEnumerate(samples) AS place
WHERE NOT isNaN(sample);

CREATE TABLE IF NOT EXISTS ${database}.episode_spans_log ${on_cluster}
(
    episode String,
    host    LowCardinality(String),
    begin   DateTime64(3, 'UTC') COMMENT 'From when on the samples are kept',
    until   DateTime64(3, 'UTC') COMMENT 'Exclusive',
    whole   Bool COMMENT 'Nothing more will be copied',
    batches UInt32 COMMENT 'Messages that were copied, or that the topics no longer held',
    gone    UInt32 COMMENT 'Those that the topics no longer held',
    stored  DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(stored)
ORDER BY episode;

CREATE VIEW IF NOT EXISTS ${database}.episode_spans ${on_cluster} AS
SELECT episode, host, begin, until, whole, batches, gone
FROM ${database}.episode_spans_log FINAL;

-- down
DROP VIEW IF EXISTS ${database}.episode_spans ${on_cluster};
DROP TABLE IF EXISTS ${database}.episode_spans_log ${on_cluster};
DROP VIEW IF EXISTS ${database}.episode_samples ${on_cluster};
DROP TABLE IF EXISTS ${database}.episode_samples_log ${on_cluster};
