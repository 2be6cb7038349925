"""Why the local Kafka cannot run, in words for the person who started it."""

from __future__ import annotations


class LocalKafkaError(RuntimeError):
    """The local Kafka cannot be prepared or started; the text says what is wrong and what to do."""


class JarError(LocalKafkaError):
    """A jar is missing and cannot be fetched, or is not the pinned one."""


class PortBusyError(LocalKafkaError):
    """Something else listens on a port the broker needs."""

    def __init__(self, port: int, option: str) -> None:
        super().__init__(
            f"port {port} on the loopback interface is in use: stop what listens there (perhaps another local Kafka), "
            f"or choose another port with {option}"
        )
        self.port = port
        self.option = option
