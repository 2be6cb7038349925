"""Ready queries, one file each: `reveal query NAME` runs them, docs/sql.md shows them with a result.

A file begins with comments: what it tells, in one line, then perhaps more, then `-- NAME = VALUE` for each parameter
that has a default of its own. Parameters are ClickHouse's, {name:Type}, and always bound. Common ones: `since` and
`until` bound the time, `host` and `subsystem` are empty for all. To add one: a file here, a place in docs/sql.md, and
`python -m tests.cookbook`. The package holds queries and nothing else; `sinks.warehouse.preset` reads them.
"""
