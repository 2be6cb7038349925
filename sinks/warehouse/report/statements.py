"""The SQL of a report, over the views of the migrations. Times of parameters are ms since 1970-01-01 UTC."""

from __future__ import annotations

from typing import Any, Final

from sinks.warehouse.report.content import Span

MATCHING: Final = """
SELECT id, host, start, subsystem FROM episodes WHERE startsWith(id, {id:String})
ORDER BY id = {id:String} DESC, start DESC, id, revision DESC LIMIT 1 BY id LIMIT 6
"""
NEAREST: Final = """
SELECT id, host, start, subsystem FROM episodes
ORDER BY editDistance(id, {id:String}), start DESC, revision DESC LIMIT 1 BY id LIMIT 3
"""
NEWEST: Final = """
SELECT id, host, start, subsystem FROM episodes WHERE {host:String} = '' OR host = {host:String}
ORDER BY start DESC, id, revision DESC LIMIT 1 BY id LIMIT 3
"""
INCIDENT: Final = """
SELECT * EXCEPT (kafka_partition, kafka_offset, stored) FROM episodes WHERE id = {id:String}
ORDER BY revision DESC LIMIT 1
"""
EVIDENCE: Final = """
SELECT * FROM evidence WHERE episode = {id:String} AND revision = {revision:Int32} ORDER BY rank
"""
TELEMETRY: Final = """
SELECT metric, min(at) AS begin, sum(mean * samples) / sum(samples), min(lowest), max(highest),
       sum(spread * samples) / sum(samples)
FROM
(
    SELECT metric, toInt64(toUnixTimestamp(ts)) * 1000 + offset_ms AS at, mean, min AS lowest, max AS highest, spread,
           samples
    FROM telemetry
    WHERE host = {host:String} AND metric IN {metrics:Array(String)}
      AND ts >= fromUnixTimestamp64Milli({begin:Int64}, 'UTC') AND ts < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
)
GROUP BY metric, intDiv(at - {begin:Int64}, {step:Int64})
ORDER BY metric, begin
"""
SAMPLES: Final = """
SELECT metric, min(at) AS begin, avg(mean), min(lowest), max(highest), avg(spread), avgIf(own, isFinite(own))
FROM
(
    SELECT metric, toUnixTimestamp64Milli(ts) AS at, avg(value) AS mean, min(value) AS lowest, max(value) AS highest,
           stddevPop(value) AS spread,
           avgIf(value, instance = transform(toString(metric), {metrics:Array(String)}, {instances:Array(String)}, ''))
               AS own
    FROM episode_samples
    WHERE episode = {id:String} AND metric IN {metrics:Array(String)}
      AND ts >= fromUnixTimestamp64Milli({begin:Int64}, 'UTC') AND ts < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
    GROUP BY metric, ts
)
GROUP BY metric, intDiv(at - {begin:Int64}, {fine:Int64})
ORDER BY metric, begin
"""
JUDGEMENTS: Final = """
SELECT max(at) AS moment, countIf(state = 'scored'), maxIf(severity, state = 'scored'), max(anomalous)
FROM
(
    SELECT toUnixTimestamp64Milli(window_end) AS at, state, severity, anomalous FROM verdicts
    WHERE host = {host:String} AND window_start >= fromUnixTimestamp64Milli({begin:Int64}, 'UTC')
      AND window_start < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
)
GROUP BY intDiv(at - {begin:Int64}, {step:Int64})
ORDER BY moment
"""
UNSCORED: Final = """
SELECT state, argMax(reason, window_start), count() AS windows FROM verdicts
WHERE host = {host:String} AND state != 'scored' AND window_start >= fromUnixTimestamp64Milli({begin:Int64}, 'UTC')
  AND window_start < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
GROUP BY state ORDER BY windows DESC, state LIMIT 5
"""
MODELS: Final = """
SELECT model_version FROM verdicts
WHERE host = {host:String} AND state = 'scored' AND window_start >= fromUnixTimestamp64Milli({begin:Int64}, 'UTC')
  AND window_start < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
GROUP BY model_version ORDER BY min(window_start) LIMIT 10
"""
STATES: Final = """
SELECT state, updated, closed, subsystem, cause, peak_severity FROM episodes WHERE id = {id:String}
ORDER BY revision LIMIT 10000
"""
EVENTS: Final = """
SELECT ts, kind, subsystem, severity, instance, code, substringUTF8(message, 1, {most:UInt32}), source,
       count() OVER () AS found
FROM events
WHERE host = {host:String} AND ts >= fromUnixTimestamp64Milli({begin:Int64}, 'UTC')
  AND ts < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
ORDER BY multiIf(severity = 'critical', 0, severity = 'warning', 1, 2),
         abs(toUnixTimestamp64Milli(ts) - {start:Int64}), session, sequence
LIMIT {limit:UInt32}
"""
OTHERS: Final = """
SELECT id, start, coalesce(closed, updated) AS until, subsystem, cause, peak_severity FROM episodes
WHERE host = {host:String} AND id != {id:String} AND until >= fromUnixTimestamp64Milli({begin:Int64}, 'UTC')
  AND start < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
ORDER BY start DESC, id, revision DESC LIMIT 1 BY id LIMIT {limit:UInt32}
"""
BATCHES: Final = """
SELECT subsystem, min(at), max(until), sum(least(until, {end:Int64}) - greatest(at, {begin:Int64})), sum(lost),
       sum(flawed)
FROM
(
    SELECT subsystem, toUnixTimestamp64Milli(start) AS at, at + toInt64(samples) * period_ms AS until,
           notEmpty(flaws) AS flawed, dropped,
           lagInFrame(dropped, 1, dropped) OVER (PARTITION BY subsystem, session ORDER BY sequence
                ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS earlier,
           if(dropped > earlier, dropped - earlier, 0) AS lost
    FROM batches
    WHERE host = {host:String} AND start >= fromUnixTimestamp64Milli({begin:Int64} - {early:Int64}, 'UTC')
      AND start < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
)
WHERE until > {begin:Int64}
GROUP BY subsystem
"""
BREAKS: Final = """
SELECT subsystem, earlier_until, at, if(session = earlier_session AND sequence > earlier_sequence,
       sequence - earlier_sequence - 1, 0) AS missing
FROM
(
    SELECT subsystem, session, sequence, toUnixTimestamp64Milli(start) AS at,
           at + toInt64(samples) * period_ms AS until,
           row_number() OVER earlier AS place,
           lagInFrame(until) OVER earlier AS earlier_until,
           lagInFrame(session) OVER earlier AS earlier_session,
           lagInFrame(sequence) OVER earlier AS earlier_sequence
    FROM batches
    WHERE host = {host:String} AND start >= fromUnixTimestamp64Milli({begin:Int64} - {early:Int64}, 'UTC')
      AND start < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
    WINDOW earlier AS (PARTITION BY subsystem ORDER BY start ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
WHERE place > 1 AND at > {begin:Int64} AND earlier_until > {begin:Int64} AND (at - earlier_until > 500 OR missing > 0)
ORDER BY at - earlier_until DESC LIMIT 10000
"""
AGENTS: Final = """
SELECT min(start) AS at, session, any(agent) FROM batches
WHERE host = {host:String} AND sequence = 0 AND start >= fromUnixTimestamp64Milli({begin:Int64}, 'UTC')
  AND start < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
GROUP BY session ORDER BY at LIMIT 100
"""
KNOWN: Final = "SELECT mapKeys(sequences) FROM hosts WHERE host = {host:String}"
NEIGHBOURS: Final = """
SELECT id, host, start, subsystem, cause, peak_severity FROM episodes
WHERE host != {host:String} AND start >= fromUnixTimestamp64Milli({begin:Int64}, 'UTC')
  AND start <= fromUnixTimestamp64Milli({end:Int64}, 'UTC')
ORDER BY id, revision DESC LIMIT 1 BY id LIMIT 100000
"""
HOSTS: Final = "SELECT count() FROM hosts"
NOW: Final = "SELECT now64(3, 'UTC')"


def bounds(host: str, span: Span) -> dict[str, Any]:
    """Parameters of statements about `host` over `span`."""
    return {
        "host": host,
        "begin": int(span.begin * 1000),
        "end": int(span.end * 1000),
        "step": int(span.step_s * 1000),
    }
