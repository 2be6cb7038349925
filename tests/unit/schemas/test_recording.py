"""Recordings hold exactly the wire records."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.codec import encode
from schemas.recording import RecordingError, RecordingWriter, read_recording
from tests.synthetic import run


def write(directory: Path, seconds: int = 5) -> list[bytes]:
    batches = list(run(["a", "b"], seconds))
    with RecordingWriter(directory) as recording:
        for batch in batches:
            recording.write(batch)
    return [encode(batch) for batch in batches]


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    written = write(tmp_path / "rec")
    read = list(read_recording(tmp_path / "rec"))
    assert sorted(encode(batch) for batch in read) == sorted(written)
    assert [batch.start_ns for batch in read] == sorted(batch.start_ns for batch in read)


def test_a_file_that_was_cut_off_gives_its_whole_blocks(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path) as recording:
        for index, batch in enumerate(run(["a"], 10)):
            recording.write(batch)
            if index == 19:
                recording.flush()
    path = tmp_path / "cpu.avro"
    path.write_bytes(path.read_bytes()[:-40])
    kept = [batch for batch in read_recording(tmp_path) if batch.subsystem == "cpu"]
    assert [batch.sequence for batch in kept] == [0, 1, 2, 3, 4]


def test_wrong_directories_are_explained(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="is no recording: it holds none of cpu.avro"):
        read_recording(tmp_path)
    write(tmp_path / "rec")
    with pytest.raises(RecordingError, match="already holds a recording"):
        RecordingWriter(tmp_path / "rec")
    (tmp_path / "cpu.avro").write_bytes(b"nonsense")
    with pytest.raises(RecordingError, match="is no Avro file of cpu telemetry"):
        list(read_recording(tmp_path))
