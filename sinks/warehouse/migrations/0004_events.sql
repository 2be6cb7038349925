-- What happened on hosts at one moment, and the timeline with it.

-- up
CREATE TABLE IF NOT EXISTS ${database}.events_log ${on_cluster}
(
    host            LowCardinality(String),
    session         LowCardinality(String) COMMENT 'New at each start of the agent',
    sequence        UInt64 CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Counts the events of a session; a gap is a loss',
    ts              DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it happened',
    kind            LowCardinality(String) COMMENT 'xid, machine_check, oom_kill, link_down, ...',
    subsystem       LowCardinality(String),
    severity        LowCardinality(String) COMMENT 'info, warning or critical',
    instance        String CODEC(ZSTD(1)) COMMENT 'The device, by the name that telemetry gives it; empty where none is known',
    code            Nullable(Int64) CODEC(ZSTD(1)) COMMENT 'A number that the source gives, such as that of an XID',
    message         String CODEC(ZSTD(1)) COMMENT 'What the source said, or what it means',
    source          LowCardinality(String) COMMENT 'kernel log, nvml, netlink or agent',
    agent           LowCardinality(String) COMMENT 'Version of the agent',
    kafka_partition Int32 CODEC(ZSTD(1)),
    kafka_offset    UInt64 CODEC(DoubleDelta, ZSTD(1)),
    stored          DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it came here: retention counts from it'
)
ENGINE = ${replicated}ReplacingMergeTree(kafka_offset)
PARTITION BY toYYYYMMDD(ts)
ORDER BY (host, session, sequence, ts)
SETTINGS ttl_only_drop_parts = 1;

CREATE VIEW IF NOT EXISTS ${database}.events ${on_cluster} AS
SELECT host, ts, kind, subsystem, severity, instance, code, message, source, session, sequence, agent,
       kafka_partition, kafka_offset, stored
FROM ${database}.events_log FINAL;

DROP VIEW IF EXISTS ${database}.host_timeline ${on_cluster};

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
    SELECT host, ts, toString(kind) AS event, toString(subsystem) AS subsystem, 0. AS severity,
           concat(toString(log.severity), if(instance = '', '', concat(' on ', instance)), ': ', message) AS detail
    FROM ${database}.events_log AS log FINAL
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

DROP VIEW IF EXISTS ${database}.events ${on_cluster};
DROP TABLE IF EXISTS ${database}.events_log ${on_cluster};
