"""Measurements against the budgets; each runs as `python -m tests.benchmarks.NAME`."""
