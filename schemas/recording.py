"""Recordings: telemetry as it is on the wire, kept in files.

A recording is a directory with one Avro object container file a subsystem (`cpu.avro`, ...), each holding the wire
records with their schema, so any Avro tool reads it and older recordings resolve to the current schema.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import fastavro
from fastavro.write import Writer

from schemas.catalogue import SUBSYSTEMS
from schemas.codec import Rejected, current_schema, telemetry_from_avro, telemetry_to_avro
from schemas.records import Telemetry


class RecordingError(ValueError):
    """The directory is no recording, or cannot be written; the message says why."""


class RecordingWriter:
    """Writes a recording into a new or empty `directory`; a context manager. Raises RecordingError if it holds one
    already.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.records = 0
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.glob("*.avro")):
            raise RecordingError(f"{directory} already holds a recording: choose another directory")
        self._writers: dict[str, Any] = {}
        self._files: list[Any] = []

    def write(self, record: Telemetry) -> None:
        """Append one record."""
        schema = current_schema(record.subsystem)
        writer = self._writers.get(record.subsystem)
        if writer is None:
            file = (self.directory / f"{record.subsystem}.avro").open("wb")
            self._files.append(file)
            writer = self._writers[record.subsystem] = Writer(file, schema.parsed, codec="deflate")
        writer.write(telemetry_to_avro(record, schema))
        self.records += 1

    def flush(self) -> None:
        """Make everything written so far readable."""
        for writer in self._writers.values():
            writer.flush()
        for file in self._files:
            file.flush()

    def close(self) -> None:
        """Finish the files."""
        self.flush()
        for file in self._files:
            file.close()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_recording(directory: Path) -> Iterator[Telemetry]:
    """Records of a recording, merged over subsystems in order of their start time.

    A file that was cut off ends where its last whole block ends. Raises RecordingError when there is nothing to read
    or a file is no telemetry.
    """
    paths = [path for subsystem in SUBSYSTEMS if (path := directory / f"{subsystem}.avro").is_file()]
    if not paths:
        names = ", ".join(f"{name}.avro" for name in SUBSYSTEMS)
        raise RecordingError(f"{directory} is no recording: it holds none of {names}")
    return heapq.merge(*(_read(path) for path in paths), key=lambda record: record.start_ns)


def _read(path: Path) -> Iterator[Telemetry]:
    schema = current_schema(path.stem)
    values: Any
    with path.open("rb") as file:
        try:
            reader = fastavro.reader(file, reader_schema=schema.parsed)
        except Exception as error:  # fastavro raises whatever its decoding trips over
            raise RecordingError(f"{path} is no Avro file of {path.stem} telemetry: {error}") from None
        while True:
            try:
                values = next(reader)
            except (StopIteration, EOFError):
                return
            except Exception as error:
                raise RecordingError(f"{path} is damaged: {type(error).__name__}: {error}") from None
            try:
                yield telemetry_from_avro(values, schema)
            except Rejected as error:
                raise RecordingError(f"{path} holds a record that cannot be used: {error}") from None
