"""Where results land: one package a destination, each a process of its own that reads Kafka and knows no other service.

Belongs here: consumers that write what the topics carry somewhere else, and the shape it has there. May not: judging
telemetry (that is for the workers), or an import of another service.

To add a sink: a package beside `warehouse/` with its client libraries behind one file each, settings in
`schemas.settings`, and a command in `deploy/commands/`.
"""
