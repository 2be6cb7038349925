"""Services and commands on the real Kafka, from the agent to SQL. They wait more than they work, so three files run at
a time: what measures time, or needs what a machine has once, is in `tests/timed`.
"""
