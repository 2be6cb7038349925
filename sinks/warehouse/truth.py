"""Ground truth of simulated fleets, into `fault_truth_log`. Not on the sink's path: the simulation writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from schemas.truth import STATES, Truth
from sinks.warehouse.rows import UTC_MS, WORD
from sinks.warehouse.store import Store

TABLE: Final = "fault_truth_log"
SCHEMA: Final = pa.schema(
    {
        "id": pa.string(),
        "revision": pa.uint8(),
        "run": pa.string(),
        "kind": WORD,
        "state": WORD,
        "host": WORD,
        "profile": WORD,
        "name": WORD,
        "cause": WORD,
        "subsystem": WORD,
        "onset": UTC_MS,
        "end": UTC_MS,
        "intensity": pa.float64(),
        "metrics": pa.list_(pa.string()),
        "instance": pa.string(),
        "twin": WORD,
    }
)


def truth_rows(truths: Sequence[Truth]) -> pa.Table:
    """Rows of the table. A thing that has ended replaces itself as it began."""
    rows = [
        {
            **{name: getattr(truth, name) for name in Truth.__slots__ if not name.endswith("_ns")},
            "revision": min(STATES.index(truth.state), 1),
            "onset": truth.onset_ns // 1_000_000,
            "end": truth.end_ns // 1_000_000,
            "metrics": list(truth.metrics),
        }
        for truth in truths
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def insert_truth(store: Store, truths: Sequence[Truth]) -> None:
    """Store `truths` and return when they are stored; again for the same is harmless. Raises StoreError.

    The tables must be there: see `migrate.bring_up_to_date`.
    """
    if truths:
        store.insert(TABLE, truth_rows(truths))
