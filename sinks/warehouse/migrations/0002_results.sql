-- What the workers found: verdicts, episodes with evidence; and what nobody could read.

-- up
CREATE TABLE IF NOT EXISTS ${database}.verdicts_log ${on_cluster}
(
    host               LowCardinality(String),
    window_start       DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    window_end         DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Exclusive',
    state              LowCardinality(String) COMMENT 'warming, withheld or scored',
    reason             String CODEC(ZSTD(1)) COMMENT 'Why it was not scored',
    coverage           Float64 CODEC(ZSTD(1)) COMMENT 'Share of the expected samples, 0 to 1',
    model_version      Int64 CODEC(ZSTD(1)),
    votes              Int32 CODEC(ZSTD(1)) COMMENT 'Detectors that vote anomalous',
    voters             Array(LowCardinality(String)) CODEC(ZSTD(1)) COMMENT 'Which they are',
    scores             Map(LowCardinality(String), Float64) CODEC(ZSTD(1)) COMMENT 'By detector; higher is stranger',
    thresholds         Map(LowCardinality(String), Float64) CODEC(ZSTD(1)) COMMENT 'By detector',
    tail_probabilities Map(LowCardinality(String), Float64) CODEC(ZSTD(1)) COMMENT 'By detector',
    severity           Float64 CODEC(ZSTD(1)) COMMENT 'Mean over detectors of -log10 of the tail probability',
    anomalous          Bool CODEC(ZSTD(1)),
    subsystem          LowCardinality(Nullable(String)) COMMENT 'What an anomalous window is attributed to',
    shares             Map(LowCardinality(String), Float64) CODEC(ZSTD(1)) COMMENT 'By subsystem; sum to 1',
    episode            Nullable(String) CODEC(ZSTD(1)),
    kafka_partition    Int32 CODEC(ZSTD(1)),
    kafka_offset       UInt64 CODEC(DoubleDelta, ZSTD(1)),
    stored             DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(kafka_offset)
PARTITION BY toYYYYMMDD(window_start)
ORDER BY (host, window_start)
SETTINGS ttl_only_drop_parts = 1;

CREATE VIEW IF NOT EXISTS ${database}.verdicts ${on_cluster} AS
SELECT host, window_start, window_end, state, reason, coverage, model_version, votes, voters, scores, thresholds,
       tail_probabilities, severity, anomalous, subsystem, shares, episode, kafka_partition, kafka_offset, stored
FROM ${database}.verdicts_log FINAL;

CREATE TABLE IF NOT EXISTS ${database}.episodes_log ${on_cluster}
(
    id              String,
    revision        Int32 COMMENT 'Counts the states of the episode from 0',
    host            LowCardinality(String),
    state           LowCardinality(String) COMMENT 'opened, updated or closed',
    start           DateTime64(3, 'UTC') COMMENT 'First strange second',
    opened          DateTime64(3, 'UTC') COMMENT 'End of the window that opened it',
    updated         DateTime64(3, 'UTC') COMMENT 'End of the last window seen',
    closed          Nullable(DateTime64(3, 'UTC')) COMMENT 'End of the last anomalous window, once closed',
    subsystem       LowCardinality(String) COMMENT 'The one with the largest share',
    shares          Map(LowCardinality(String), Float64),
    windows         Int32 COMMENT 'Anomalous windows so far',
    votes           Map(LowCardinality(String), Int32) COMMENT 'Anomalous windows each detector voted for',
    severity        Float64,
    peak_severity   Float64,
    peak            DateTime64(3, 'UTC'),
    model_version   Int64,
    cause           LowCardinality(Nullable(String)),
    explanation     String,
    kafka_partition Int32,
    kafka_offset    UInt64,
    stored          DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(kafka_offset)
PARTITION BY toYYYYMM(start)
ORDER BY (id, revision, start);

CREATE VIEW IF NOT EXISTS ${database}.episodes ${on_cluster} AS
SELECT id, revision, host, state, start, opened, updated, closed, subsystem, shares, windows, votes, severity,
       peak_severity, peak, model_version, cause, explanation, kafka_partition, kafka_offset, stored
FROM ${database}.episodes_log FINAL;

CREATE TABLE IF NOT EXISTS ${database}.evidence_log ${on_cluster}
(
    episode           String,
    revision          Int32,
    rank              UInt32 COMMENT 'From 1, strongest first',
    host              LowCardinality(String),
    start             DateTime64(3, 'UTC') COMMENT 'Start of the episode',
    metric            LowCardinality(String),
    subsystem         LowCardinality(String),
    instance          String COMMENT 'The one that deviates most; empty for a metric of the host',
    feature           LowCardinality(String),
    unit              LowCardinality(String),
    observed          Float64,
    expected          Float64 COMMENT 'Median on the baseline',
    deviation         Float64 COMMENT '(observed - expected) / robust scale',
    instance_observed Nullable(Float64),
    instance_expected Nullable(Float64),
    kafka_partition   Int32,
    kafka_offset      UInt64,
    stored            DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(kafka_offset)
PARTITION BY toYYYYMM(start)
ORDER BY (episode, revision, rank, start);

CREATE VIEW IF NOT EXISTS ${database}.evidence ${on_cluster} AS
SELECT episode, revision, rank, host, start, metric, subsystem, instance, feature, unit, observed, expected, deviation,
       instance_observed, instance_expected, kafka_partition, kafka_offset, stored
FROM ${database}.evidence_log FINAL;

CREATE TABLE IF NOT EXISTS ${database}.dead_letters_log ${on_cluster}
(
    received        DateTime64(3, 'UTC') COMMENT 'When it was given up',
    topic           LowCardinality(String) COMMENT 'Where the message came from',
    partition       Int32,
    offset          Int64,
    service         LowCardinality(String) COMMENT 'Who gave it up',
    reason          LowCardinality(String),
    detail          String,
    key             Nullable(String),
    value           Nullable(String) COMMENT 'The message as it came, cut at 64 KiB',
    kafka_partition Int32,
    kafka_offset    UInt64,
    stored          DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(kafka_offset)
ORDER BY (topic, partition, offset, reason);

CREATE VIEW IF NOT EXISTS ${database}.dead_letters ${on_cluster} AS
SELECT received, topic, partition, offset, service, reason, detail, key, value, kafka_partition, kafka_offset, stored
FROM ${database}.dead_letters_log FINAL;

-- down
DROP VIEW IF EXISTS ${database}.dead_letters ${on_cluster};
DROP TABLE IF EXISTS ${database}.dead_letters_log ${on_cluster};
DROP VIEW IF EXISTS ${database}.evidence ${on_cluster};
DROP TABLE IF EXISTS ${database}.evidence_log ${on_cluster};
DROP VIEW IF EXISTS ${database}.episodes ${on_cluster};
DROP TABLE IF EXISTS ${database}.episodes_log ${on_cluster};
DROP VIEW IF EXISTS ${database}.verdicts ${on_cluster};
DROP TABLE IF EXISTS ${database}.verdicts_log ${on_cluster};
