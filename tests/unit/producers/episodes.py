"""Episodes as a worker tells them."""

from __future__ import annotations

from schemas.records import Episode


def episode(state: str = "opened", host: str = "a", name: str = "e1", revision: int = 0) -> Episode:
    """A state of an episode."""
    return Episode(
        id=name,
        revision=revision,
        host=host,
        state=state,
        start_ns=1,
        opened_ns=2,
        updated_ns=3,
        closed_ns=4 if state == "closed" else None,
        subsystem="cpu",
        shares={},
        windows=1,
        votes={},
        severity=3.0,
        peak_severity=3.0,
        peak_ns=2,
        model_version=1,
    )
