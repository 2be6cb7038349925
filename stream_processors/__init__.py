"""Telemetry in, verdicts and episodes out.

Belongs here: the pure pipeline (seconds, windows, features, baseline, detectors, attribution, episodes, happenings;
numpy and plain values, no clock, no I/O), the backtest that runs it over a recording, `faust_app` that runs it as a
worker, `intake`, its Faust application, `kafka`, the worker's own clients, and `compiled`, which keeps compiled loops.
May not: a client library anywhere else, an import of producers or sinks.

To add a detector: a class with `learn`, `scores` and `contributions` in `detectors.py` and a line in its table
DETECTORS; the shared checks in tests/unit/stream_processors/test_detectors.py pick it up.

To add a cause: a section in `causes.toml`; docs/causes.md says how.
"""
