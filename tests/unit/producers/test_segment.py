"""The format of the spool's files: whatever happens to the bytes, no exception and no wrong message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.segment import (
    HEADER_BYTES,
    LARGEST_BYTES,
    MARKER,
    VERSION,
    Damage,
    Stored,
    UnusableError,
    header,
    record,
    records,
    salt_of,
)

SALT = 0x1234ABCD
NAMES = st.sampled_from(["reveal.events", "reveal.telemetry.cpu", "t"])
MESSAGES = st.builds(
    Stored,
    topic=NAMES,
    key=st.binary(max_size=20),
    value=st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=20).map(lambda value: value * 50),
        # A message may hold what looks like a part of a segment.
        st.just(MARKER * 20),
        st.just(header(SALT)),
        st.builds(lambda value, salt: record(Stored("t", b"k", value, "gpu", 1, 2), salt), st.binary(), st.just(1)),
    ),
    subsystem=st.sampled_from(["cpu", "memory", ""]),
    samples=st.integers(0, 2**32 - 1),
    time_ns=st.integers(-(2**63), 2**63 - 1),
)


def written(messages: list[Stored]) -> bytes:
    """The records of `messages`."""
    return b"".join(record(message, SALT) for message in messages)


def read(data: bytes, salt: int = SALT) -> list[Stored | Damage]:
    """Everything in `data`; the items end one behind the other, the last one where the data ends."""
    found = list(records(data, salt))
    ends = [end for end, _ in found]
    assert ends == sorted(set(ends))
    assert not ends or ends[-1] == len(data)
    return [item for _, item in found]


def sound(items: list[Stored | Damage]) -> list[Stored]:
    """The messages among `items`."""
    return [item for item in items if isinstance(item, Stored)]


@given(st.lists(MESSAGES, max_size=6))
def test_what_is_written_is_read(messages: list[Stored]) -> None:
    data = written(messages)
    assert read(data) == messages
    assert len(data) <= sum(message.size for message in messages)


@given(st.lists(MESSAGES, min_size=1, max_size=6), st.data())
@settings(max_examples=300)
def test_cut_anywhere(messages: list[Stored], data: st.DataObject) -> None:
    whole = written(messages)
    cut = data.draw(st.integers(0, len(whole) - 1))
    items = read(whole[:cut])
    ends, at = [], 0
    for message in messages:
        at += len(record(message, SALT))
        ends.append(at)
    kept = sum(end <= cut for end in ends)
    assert sound(items) == messages[:kept]
    # What is missing is said, unless the cut is just between two.
    assert len(items) - kept == (0 if cut in (0, *ends) else 1)


@given(st.lists(MESSAGES, min_size=1, max_size=6), st.data())
@settings(max_examples=500)
def test_one_byte_changed(messages: list[Stored], data: st.DataObject) -> None:
    whole = bytearray(written(messages))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    begin, hit = 0, 0
    for index, message in enumerate(messages):
        end = begin + len(record(message, SALT))
        if begin <= at < end:
            hit = index
        begin = end
    items = read(bytes(whole))
    assert sound(items) == messages[:hit] + messages[hit + 1 :]
    (damage,) = (item for item in items if isinstance(item, Damage))
    assert items.index(damage) == hit
    assert (damage.subsystem, damage.samples) in (("", 0), (messages[hit].subsystem, messages[hit].samples))


@given(st.lists(MESSAGES, min_size=1, max_size=6), st.data())
def test_a_hole_anywhere(messages: list[Stored], data: st.DataObject) -> None:
    """A stretch of zeros, as a file system leaves behind that lost its power, costs no message outside."""
    whole = bytearray(written(messages))
    start = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(start + 1, len(whole)))
    before = bytes(whole)
    whole[start:end] = bytes(end - start)
    left, begin = [], 0
    for message in messages:
        stretch = slice(begin, begin + len(record(message, SALT)))
        if bytes(whole[stretch]) == before[stretch]:
            left.append(message)
        begin = stretch.stop
    assert sound(read(bytes(whole))) == left


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    assert not sound(read(data))
    with pytest.raises(UnusableError):
        salt_of(data)


def test_a_message_inside_a_message_is_none() -> None:
    inner = record(Stored("t", b"k", b"forged", "cpu", 1, 1), SALT + 1)
    outer = bytearray(record(Stored("t", b"k", inner, "cpu", 10, 1), SALT))
    outer[5] ^= 1
    assert read(bytes(outer)) == [Damage(f"{len(outer)} bytes that are no record")]


def test_telemetry_is_packed() -> None:
    message = Stored("t", b"k", b"0123456789" * 1000, "cpu", 10, 1)
    assert len(record(message, SALT)) < message.size / 20
    assert read(record(message, SALT)) == [message]


def test_headers() -> None:
    for salt in (0, SALT, 2**32 - 1):
        assert salt_of(header(salt) + b"rest") == salt
    good = header(SALT)
    assert len(good) == HEADER_BYTES
    for at in range(HEADER_BYTES):
        bad = bytearray(good)
        bad[at] ^= 0x10
        with pytest.raises(UnusableError, match="not a segment|damaged header"):
            salt_of(bytes(bad))
        with pytest.raises(UnusableError, match="shorter than its header"):
            salt_of(good[:at])


def test_another_version_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.segment.VERSION", VERSION + 1)
    later = header(SALT)
    monkeypatch.undo()
    with pytest.raises(UnusableError, match=f"version {VERSION + 1}, this agent reads {VERSION}"):
        salt_of(later)


@pytest.mark.parametrize(
    "message",
    [
        Stored("t", b"k", bytes(LARGEST_BYTES + 1), "cpu", 1, 1),
        Stored("t" * 256, b"k", b"v", "cpu", 1, 1),
        Stored("t", b"k" * 65_536, b"v", "cpu", 1, 1),
        Stored("t", b"k", b"v", "cpu", 2**32, 1),
    ],
)
def test_what_does_not_fit_is_refused(message: Stored) -> None:
    with pytest.raises(ValueError, match=r"too large for the spool|cannot hold"):
        record(message, SALT)
