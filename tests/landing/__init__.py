"""Where results land: sinks and queries on the real Kafka and the real ClickHouse engine. They wait more than they
work, so three files run at a time.
"""
