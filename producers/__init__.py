"""The agent on every host: reads the kernel's counters, turns them into rates and sends them; recorder and replayer.

Belongs here: collectors (one file a source), the frame that reads them on time, rates, the publisher (the only file
that imports a Kafka client), replay. May not: judging what is measured, any import of another service.

To add a metric or a source, see `producers.collectors`.
"""
