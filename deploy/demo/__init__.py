"""`reveal demo`: the stack, a warm-up on this machine's real telemetry, two real faults, and what was found of them.

Belongs here: the faults, the watch on ClickHouse while they run, and the report. May not: anything that helps the
pipeline find them; the demo talks to the stack through `reveal up`, Kafka and ClickHouse as any user does.
To add a fault: a function and a row of FAULTS in `faults.py`. It must stop by itself, die with its parent, and leave
nothing behind.
"""
