"""Records of every kind, for the tests of the sinks."""

from __future__ import annotations

from schemas.records import DeadLetter, DetectorScore, Episode, Event, Evidence, Verdict

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND


def verdict(host: str, index: int, severity: float = 0.5) -> Verdict:
    """Verdict of window `index` of `host`."""
    start = START + index * SECOND
    scores = (
        DetectorScore("zscore", 1.5, 3.0, 0.25, False),
        DetectorScore("mahalanobis", 9.0, 8.0, 0.001, True),
        DetectorScore("forest", float("nan"), float("inf"), 0.5, False),
    )
    return Verdict(
        host=host,
        window_start_ns=start,
        window_end_ns=start + 3 * SECOND,
        state="scored",
        coverage=0.75,
        model_version=7,
        scores=scores,
        votes=1,
        severity=severity,
        shares={"cpu": 0.75, "memory": 0.25},
    )


def episode(host: str, revision: int, state: str = "updated") -> Episode:
    """Revision of the one episode of `host`."""
    end = START + (3 + revision) * SECOND
    return Episode(
        id=f"{host}-episode",
        revision=revision,
        host=host,
        state=state,
        start_ns=START,
        opened_ns=START + 3 * SECOND,
        updated_ns=end,
        closed_ns=end if state == "closed" else None,
        subsystem="cpu",
        shares={"cpu": 1.0},
        windows=revision + 2,
        votes={"zscore": revision + 2},
        severity=3.0,
        peak_severity=4.0,
        peak_ns=START + 3 * SECOND,
        model_version=7,
        cause=None if revision == 0 else "cpu_contention",
        explanation="something ran beside the job",
        evidence=(
            Evidence("cpu.time.user", "cpu", "1", "level of the maximum", "s/s", 0.9, 0.1, 12.0, 0.95, 0.1),
            Evidence("cpu.load1", "cpu", "", "level", "", 4.0, 1.0, 8.0),
        ),
    )


def event(host: str, sequence: int, kind: str = "xid", code: int | None = 79) -> Event:
    """Event `sequence` of `host`, as many milliseconds after the first second."""
    return Event(
        host=host,
        session="s1",
        sequence=sequence,
        time_ns=START + SECOND + sequence * SECOND // 1000,
        kind=kind,
        subsystem="gpu",
        severity="critical",
        message="GPU has fallen off the bus",
        source="kernel log",
        instance="gpu3",
        code=code,
        agent="test",
    )


def letter(offset: int, service: str = "worker", reason: str = "not-avro") -> DeadLetter:
    """A dead letter about `offset` of a topic."""
    return DeadLetter("reveal.telemetry.cpu", 0, offset, service, reason, "starts with 00", b"h1", b"\x00\xff")
