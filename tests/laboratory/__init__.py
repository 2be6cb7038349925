"""The fault laboratory: real faults on this machine, and what Reveal makes of them. `python -m tests.laboratory`.

Belongs here: the steady workload, the faults, the wire that some of them impair, the course of a run, its evaluation
and its report. May not: anything that helps the pipeline to find a fault. The laboratory starts `reveal up` with the
settings that everybody has, and reads ClickHouse as any user does.
To add a fault: a row of FAULTS in `table.py`. It is a program that runs until it is told to end by SIGTERM, or dies,
and whose effects end with it: whatever it needs of the kernel (a namespace, an impairment, an unlinked file) hangs on a
process, so that nothing stays behind however the laboratory ends.
"""
