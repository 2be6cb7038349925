"""How good a score is against labels: curves over all thresholds, and what one threshold finds.

No point adjustment: a point that is not flagged is not found because its neighbour is.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

BUFFERS: Final = tuple(range(0, 41, 4))
"""Buffer lengths of VUS-PR, in samples."""


def runs(flags: NDArray[Any]) -> list[tuple[int, int]]:
    """Start and end (exclusive) of each run of true values."""
    steps = np.diff(np.concatenate([[0], (np.asarray(flags) > 0).astype(np.int8), [0]]))
    return list(zip(np.flatnonzero(steps == 1).tolist(), np.flatnonzero(steps == -1).tolist(), strict=True))


def average_precision(labels: NDArray[Any], scores: Floats) -> float | None:
    """Area under the precision-recall curve: precision at each threshold, weighted by the recall gained there. None
    without an anomaly.
    """
    weights = (np.asarray(labels) > 0).astype(np.float64)
    if not weights.any():
        return None
    hits, taken, _ = _by_threshold(weights, scores)
    return float((np.diff(hits, prepend=0.0) / weights.sum() * hits / taken).sum())


def vus_pr(labels: NDArray[Any], scores: Floats, buffers: tuple[int, ...] = BUFFERS) -> float | None:
    """Volume under the surface of range-based precision-recall curves (Paparrizos et al., Volume under the surface,
    VLDB 2022): their mean area over the buffer lengths. None without an anomaly.

    With a buffer of length b a label falls to both sides of an anomaly as sqrt(1 - distance / b) over b // 2 samples.
    Precision is the sum of flagged labels over the number flagged; recall is that sum over the mean of the sums of the
    labels with and without buffers, at most 1, times the share of anomalies, with their buffers, that are touched. The
    curve is summed up as in `average_precision`, over all thresholds.
    """
    bare = (np.asarray(labels) > 0).astype(np.float64)
    if not bare.any():
        return None
    areas: list[float] = []
    for buffer in buffers:
        soft = soft_labels(bare, buffer)
        hits, taken, thresholds = _by_threshold(soft, scores)
        tops = np.sort([scores[start:end].max() for start, end in runs(soft)])
        touched = (len(tops) - np.searchsorted(tops, thresholds, side="left")) / len(tops)
        recall = np.minimum(hits / ((bare.sum() + soft.sum()) / 2), 1.0) * touched
        areas.append(float((np.diff(recall, prepend=0.0) * hits / taken).sum()))
    return float(np.mean(areas))


def soft_labels(bare: Floats, buffer: int) -> Floats:
    """Labels (n,) with a buffer of that length around each anomaly."""
    soft = bare.copy()
    for start, end in runs(bare):
        after = np.arange(end, min(end + buffer // 2, len(bare)))
        before = np.arange(max(start - buffer // 2, 0), start)
        # The last sample of the anomaly is at distance 0, as the first one is.
        soft[after] += np.sqrt(1 - (after - (end - 1)) / max(buffer, 1))
        soft[before] += np.sqrt(1 - (start - before) / max(buffer, 1))
    return np.minimum(soft, 1.0)


@dataclass(frozen=True, slots=True)
class Found:
    """What one threshold finds.

    event_recall     share of the events of which a sample is flagged; None without events
    event_precision  share of the runs of flagged samples that touch an event; None without any
    delay            median over the events found, samples from their start to the first flagged one; None without any
    flagged_normal   share of the normal samples that are flagged
    """

    event_recall: float | None
    event_precision: float | None
    delay: float | None
    flagged_normal: float | None

    @classmethod
    def of(cls, labels: NDArray[Any], flags: Flags) -> Found:
        """Compare flags (n,) with labels (n,)."""
        events, alarms, odd = runs(labels), runs(flags), np.asarray(labels) > 0
        delays = [int(flags[start:end].argmax()) for start, end in events if flags[start:end].any()]
        return cls(
            event_recall=len(delays) / len(events) if events else None,
            event_precision=sum(odd[start:end].any() for start, end in alarms) / len(alarms) if alarms else None,
            delay=float(median(delays)) if delays else None,
            flagged_normal=float(flags[~odd].mean()) if not odd.all() else None,
        )


def _by_threshold(weights: Floats, scores: Floats) -> tuple[Floats, Floats, Floats]:
    """For each score that occurs, highest first: sum of the weights at or above it, number of samples there, and it."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last = np.flatnonzero(np.diff(ordered, append=-np.inf) != 0)
    return np.cumsum(weights[order])[last], (last + 1).astype(np.float64), ordered[last]
