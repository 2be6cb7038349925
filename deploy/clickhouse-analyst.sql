-- A user for people who ask Reveal's tables: reads, and no more than is good for the others.
--
--     clickhouse-client --multiquery --param_password='...' < deploy/clickhouse-analyst.sql
--
-- Needs a user with ACCESS MANAGEMENT. On a cluster run it on each node (ON CLUSTER would lose the password), or on one
-- where users are replicated. The database is `reveal`, as REVEAL_CLICKHOUSE_DATABASE says by default.
--
-- To ClickHouse a limit of 0 is none at all, hence the MIN. The quota is that of each user, not of all together.

CREATE SETTINGS PROFILE IF NOT EXISTS reveal_analyst SETTINGS
    readonly = 2 CONST,
    allow_ddl = 0 CONST,
    max_execution_time = 60 MIN 1 MAX 600,
    max_result_rows = 1000000 MIN 1 MAX 10000000,
    result_overflow_mode = 'throw',
    max_rows_to_read = 5000000000 MIN 1 MAX 50000000000,
    read_overflow_mode = 'throw',
    max_memory_usage = 8000000000 MIN 1 MAX 16000000000,
    max_threads = 8 MAX 16,
    priority = 10 CONST;

CREATE ROLE IF NOT EXISTS reveal_analyst SETTINGS PROFILE 'reveal_analyst';

GRANT SELECT ON reveal.* TO reveal_analyst;

CREATE QUOTA IF NOT EXISTS reveal_analyst
    KEYED BY user_name
    FOR INTERVAL 1 hour MAX queries = 2000, read_rows = 100000000000, execution_time = 1800
    TO reveal_analyst;

CREATE USER IF NOT EXISTS analyst IDENTIFIED WITH sha256_password BY {password:String}
    DEFAULT ROLE reveal_analyst
    DEFAULT DATABASE reveal;

GRANT reveal_analyst TO analyst;
