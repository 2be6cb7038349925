"""ClickHouse on one machine: one process owns the embedded engine (chDB) and speaks the ClickHouse HTTP interface.

The stock clients (clickhouse-connect, curl, SQL tools) use it like a server, so everything written against it runs
unchanged on a cluster. What belongs here: the engine and its connections, and the HTTP interface in front of them.
What may not: tables, migrations or queries of Reveal (they live in `sinks.warehouse`), and any import of the engine
outside `engine`, since one process alone may own a directory.

- `statement` cuts SQL where the interface needs it: the data of an INSERT, the FORMAT of a result.
- `engine` owns the directory, its configuration and the connections; `errors` knows the engine's error codes.
- `compression` and `body` are the bytes on the wire, `request` the parameters, `sessions` what outlives a request.
- `access` says who may ask, `execution` runs one statement, `exchange` is its answer on the wire.
- `http` ties them together, `server` starts and stops the whole.

To add a part of the HTTP interface: read its parameter in `request`, act on it in `http`, and show with a stock
client in `tests/landing/test_clickhouse_server.py` that it behaves as a server does.
"""
