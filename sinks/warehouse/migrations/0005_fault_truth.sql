-- Ground truth of simulated fleets: what was wrong with which host when. A few rows an hour and host, kept for good.

-- up
CREATE TABLE IF NOT EXISTS ${database}.fault_truth_log ${on_cluster}
(
    id        String,
    revision  UInt8 COMMENT 'Counts the states from 0',
    run       String COMMENT 'Which simulation: its seed and start',
    kind      LowCardinality(String) COMMENT 'fault, or change of the job, which is none',
    state     LowCardinality(String) COMMENT 'begun, ended, or cut off by the end of the simulation',
    host      LowCardinality(String),
    profile   LowCardinality(String),
    name      LowCardinality(String),
    cause     LowCardinality(String),
    subsystem LowCardinality(String) COMMENT 'To which it is to be attributed; empty for a change',
    onset     DateTime64(3, 'UTC'),
    end       DateTime64(3, 'UTC') COMMENT 'Exclusive; while it lasts, when it is to end',
    intensity Float64 COMMENT '1 is the full fault',
    metrics   Array(LowCardinality(String)) COMMENT 'That a fault moves, with + or - before the name',
    instance  String COMMENT 'Core, GPU, port or disk that it strikes; empty for the whole host',
    twin      LowCardinality(String) COMMENT 'Host that does the same job without a fault; empty if none',
    stored    DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ${replicated}ReplacingMergeTree(revision)
PARTITION BY toYYYYMM(onset)
ORDER BY (host, onset, id);

CREATE VIEW IF NOT EXISTS ${database}.fault_truth ${on_cluster} AS
SELECT id, run, kind, state, host, profile, name, cause, subsystem, onset, end, intensity, metrics, instance, twin
FROM ${database}.fault_truth_log FINAL;

-- down
DROP VIEW IF EXISTS ${database}.fault_truth ${on_cluster};
DROP TABLE IF EXISTS ${database}.fault_truth_log ${on_cluster};
