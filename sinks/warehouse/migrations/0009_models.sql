-- What was learnt of each host, and the hardware of each host in numbers.

-- up
CREATE TABLE IF NOT EXISTS ${database}.models_log ${on_cluster}
(
    host            LowCardinality(String),
    version         Int64 COMMENT 'Counts the fits of the host from 1',
    learnt_from     DateTime('UTC') COMMENT 'First window it learnt from; 1970 where that is not recorded',
    learnt_to       DateTime('UTC') COMMENT 'Last window it learnt from',
    learnt_windows  UInt32 COMMENT 'How many windows those were',
    features        UInt32 COMMENT 'Features that the host has',
    kept            UInt32 COMMENT 'Features that the detectors look at, after pruning',
    kept_by         Map(LowCardinality(String), UInt32) COMMENT 'The same by subsystem',
    bytes           UInt32 COMMENT 'Size of its arrays',
    kafka_partition Int32,
    kafka_offset    UInt64,
    stored          DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(kafka_offset)
ORDER BY (host, version, learnt_to);

CREATE VIEW IF NOT EXISTS ${database}.models ${on_cluster} AS
SELECT host, version, learnt_from, learnt_to, learnt_windows, features, kept, kept_by, bytes, stored
FROM ${database}.models_log FINAL;

DROP VIEW IF EXISTS ${database}.hosts ${on_cluster};

CREATE VIEW IF NOT EXISTS ${database}.hosts ${on_cluster} AS
SELECT host,
       max(log.seen) AS last_seen,
       argMax(log.agent, log.seen) AS agent,
       argMax(log.session, log.seen) AS session,
       mapFromArrays(groupArray(log.subsystem), groupArray(log.sequence)) AS sequences,
       sum(log.dropped) AS dropped,
       argMax(log.period_ms, log.seen) AS period_ms,
       mapFromArrays(groupArrayArray(mapKeys(log.instances)), groupArrayArray(mapValues(log.instances))) AS instances,
       mapApply((dimension, names) -> (dimension, toUInt32(length(names))), instances) AS layout
FROM ${database}.hosts_log AS log FINAL
GROUP BY host;

-- down
DROP VIEW IF EXISTS ${database}.hosts ${on_cluster};

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

DROP VIEW IF EXISTS ${database}.models ${on_cluster};
DROP TABLE IF EXISTS ${database}.models_log ${on_cluster};
