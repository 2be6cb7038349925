"""Labelled series of many metrics, and features of their samples as the pipeline makes them of telemetry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_processors.features import FEATURES, describe
from stream_processors.seconds import FIRST, LAST, M2, MAX, MEAN, MIN, ROWS, Floats, N, merge_values
from tests.benchmarks.curves import runs

WINDOWS: Final[Mapping[int, tuple[str, ...]]] = {
    1: ("level",),
    2: ("trend",),
    5: ("variability", "roughness"),
    10: ("variability",),
}
"""Kinds of features of windows that end with a sample, by their length in samples. A sample a minute says less than the
thirty of a window of 10 Hz, so that a level is that of the sample itself, a trend its step from the one before, and
swings are looked for over five and ten samples.
"""
CHUNK: Final = 2048


@dataclass(frozen=True, slots=True)
class Labelled:
    """One series.

    train, test  float64 (samples, metrics), NaN where absent
    label        bool (samples of test,)
    events       start, end (exclusive) and, where it is known, which metrics (from 0) each run of labels is about
    """

    name: str
    train: Floats
    test: Floats
    label: NDArray[np.bool_]
    events: tuple[tuple[int, int, frozenset[int]], ...]

    @classmethod
    def read(cls, path: Path) -> Labelled:
        """From an .npz file with train, test, label and perhaps interpretation. Raises KeyError, OSError or ValueError
        for others.
        """
        with np.load(path, allow_pickle=False) as stored:
            train, test = (_matrix(stored[name]) for name in ("train", "test"))
            label = np.asarray(stored["label"]).ravel() > 0
            told = _interpretation(stored["interpretation"]) if "interpretation" in stored else []
        if train.shape[1] != test.shape[1] or len(label) != len(test):
            raise ValueError(f"{path}: shapes {train.shape}, {test.shape} and {label.shape} do not fit")
        events = tuple((start, end, _about(start, end, told, test.shape[1])) for start, end in runs(label))
        return cls(path.stem, train, test, label, events)


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns of `features` are, (features,) each: metric (from 0), rank of the kind in FEATURES, and length
    of the window.
    """

    metric_of: NDArray[np.intp]
    preference: NDArray[np.intp]
    length: NDArray[np.intp]

    @classmethod
    def of(cls, metrics: int) -> Columns:
        """For so many metrics."""
        kinds = [(FEATURES.index(kind), length) for length, chosen in WINDOWS.items() for kind in chosen]
        preference, lengths = np.repeat(np.array(kinds).T, metrics, axis=1)
        return cls(np.tile(np.arange(metrics), len(kinds)), preference, lengths)


def features(samples: Floats) -> Floats:
    """Features (samples, features) of the windows that end with each sample: for each of WINDOWS and its kinds, those
    of all metrics. The first windows are shorter.
    """
    longest = max(WINDOWS)
    padded = np.concatenate([np.full((longest - 1, samples.shape[1]), np.nan), samples])
    parts = [_features(padded[start : start + CHUNK + longest - 1]) for start in range(0, len(samples), CHUNK)]
    return np.concatenate(parts)


def _features(padded: Floats) -> Floats:
    longest = max(WINDOWS)
    count = len(padded) - longest + 1
    window = _single(padded[longest - 1 :])
    columns: list[Floats] = []
    for length in range(1, longest + 1):
        if length > 1:
            earlier = _single(padded[longest - length : longest - length + count])
            window = merge_values(earlier, window, 1.0)
        if length in WINDOWS:
            described = describe(window)
            columns += [described[FEATURES.index(kind)].reshape(count, -1) for kind in WINDOWS[length]]
    return np.concatenate(columns, axis=1)


def _single(samples: Floats) -> Floats:
    """Statistics of windows of one sample each, as in `seconds`."""
    values = samples.ravel()
    stats = np.zeros((len(ROWS), len(values)))
    there = ~np.isnan(values)
    stats[N] = there
    for row in (MEAN, MIN, MAX, FIRST, LAST):
        stats[row] = values
    stats[M2] = np.where(there, 0.0, np.nan)
    return stats


def _matrix(stored: NDArray[Any]) -> Floats:
    matrix = np.asarray(stored, dtype=np.float64)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    return np.where(np.isfinite(matrix), matrix, np.nan)


def _interpretation(stored: NDArray[Any]) -> list[tuple[int, int, list[int]]]:
    """Rows [start, end, [dimensions from 1]], stored as JSON or as such."""
    rows = json.loads(str(stored)) if stored.dtype.kind in "US" and stored.ndim == 0 else stored.tolist()
    return [(int(start), int(end), [int(each) for each in about]) for start, end, about in rows or []]


def _about(start: int, end: int, told: list[tuple[int, int, list[int]]], metrics: int) -> frozenset[int]:
    """Metrics of the rows that overlap with start to end."""
    found = {each - 1 for first, last, about in told if first < end and last >= start for each in about}
    return frozenset(each for each in found if 0 <= each < metrics)
