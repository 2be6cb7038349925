"""The ClickHouse sink: telemetry a second, verdicts, episodes with evidence, events and dead letters, all in SQL.

How nothing is lost and nothing is there twice
----------------------------------------------
Nothing is lost because the offsets of a message are committed to Kafka only after ClickHouse has confirmed every row
made of it (and, for a message that cannot be read, after Kafka has confirmed its dead letter). Whatever dies before
that, the message is read again.

So rows are written at least once, and every way in which a row can come twice ends in the same place: the sink is
killed between insert and commit; of a batch over midnight the first day's insert is stored and the second is not; an
insert times out and is stored all the same; a dead predecessor's insert is stored after its successor looked; two
sinks own a partition for a moment of a rebalance; a worker or an agent sends the same thing again under new offsets.
Asking the table for the highest offset stored answers the first two only: it cannot see an insert still on its way,
nor that two offsets mean the same window. Therefore identity, not history, decides: each row is a pure function of
its message, carries an identity that says what it is about, and is stored in a ReplacingMergeTree ordered by that
identity.

    table (what was inserted)   identity                                 which of two counts
    telemetry_log               host, metric, ts, offset_ms              either: they are equal
    batches_log                 host, subsystem, session, sequence       either
    hosts_log                   host, subsystem                          the latest seen
    verdicts_log                host, window_start                       the later offset
    episodes_log                id, revision                             the later offset
    evidence_log                episode, revision, rank                  the later offset
    events_log                  host, session, sequence                  the later offset
    dead_letters_log            topic, partition, offset, reason         the later offset
    models_log                  host, version, learnt_to                 the later offset
    telemetry_minute_log, _hour host, metric, minute or hour             the one with more samples
    episode_samples_log         episode, metric, instance, begin         either
    episode_spans_log           episode                                  the later stored

ClickHouse drops the others when it merges parts, and until then the views of the plain names (`telemetry`,
`verdicts`, ...) read with FINAL, so that a reader sees each thing once, always, also a moment after a duplicate came.
Everything for people and programs reads the views; conditions on host and time reach the primary key through them.
An identity never spans two days of a table, so that its duplicates meet in one partition.

One insert is one table and one day, and is confirmed before the next: a day is there whole or not at all.

What is computed from rows, the sums of minutes and hours, is computed from the views, never from what is inserted: so
it is right although rows come twice. One sink of the group does that, and copies the samples around episodes, in a
thread of its own; what it has to do follows from the tables, so nothing is forgotten when it dies.

What is where: `messages` judges bytes, `seconds` reduces telemetry, `rows` shapes tables, `lanes` gathers batches,
`rejects` caps dead letters, `consumer` and `excerpt` alone know Kafka, `store` alone knows ClickHouse, `migrate` owns
the DDL in `migrations/`, `upkeep` has `rollups` and `samples` done, `endpoint` serves the `status`, `preset` reads the
queries in `presets/`.

To add a table: a migration with the log and its view, a function in `rows`, a line in the table above, its retention in
`migrate`.
"""
