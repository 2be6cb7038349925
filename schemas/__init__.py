"""The shared language of the services: what they say to each other, and nothing about how they work.

Belongs here: Avro schemas (`avro/`, and every published version in `versions/`), the metric catalogue read from them,
frozen record types, the codec, the topic table and the settings of every service. May not: a client library, a clock,
an import of any other folder of ours.

To add a metric: one field in `avro/<subsystem>.avsc`, one line in its collector, then `python -m schemas.versions` to
publish the new version.
"""
