"""Counters of processors, memory controllers and the kernel, by perf_event_open.

`kernel` is the system call, `pmu` reads what the kernel says of its counting units, `events` is the table of what to
count, `counts` makes running sums of what was read, `source` opens and reads. What the sums mean is the collector's
(`producers/collectors/perf.py`). A new event is a row in `events`.
"""
