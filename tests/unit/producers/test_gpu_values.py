"""What the parts around GPUs make of numbers, names and bytes."""

from __future__ import annotations

import json
import math
import os
import struct
from array import array
from pathlib import Path

import pytest

from producers.collector import ParseError
from producers.collectors.gpu import GPU
from producers.gpu import wire
from producers.gpu.bus import Bus, library
from producers.gpu.fields import COUNTERS, IMPLAUSIBLE, RANGES, number, power_bound
from producers.gpu.names import GpuNames, normal
from producers.gpu.process import HELLO_KEY, STALE_KEY, STATE_KEY, VALUES_KEY
from schemas.catalogue import catalogue
from tests.unit.producers.readings import values

DOUBLE, UINT, ULONG, ULONGLONG, SLONGLONG, SINT, USHORT = range(7)


def bits(value: float) -> int:
    """A double as the library puts it."""
    (found,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(found)


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        (DOUBLE, bits(12.5), 12.5),
        (UINT, 70, 70),
        # Only the low half of the union belongs to a narrow value.
        (UINT, 0xABCD000000000046, 70),
        (SINT, 0xFFFFFFFFFFFFFFFB, -5),
        (SINT, 0x00000000FFFFFFFB, -5),
        (USHORT, 0xFFFF0007, 7),
        (ULONG, 5, 5),
        (ULONGLONG, 2**62, 2**62),
        (SLONGLONG, 2**64 - 3, -3),
        # A counter on its way past 2^32 is no blank.
        (ULONGLONG, 0x7FFFFFF0, 0x7FFFFFF0),
    ],
)
def test_numbers_by_type(kind: int, raw: int, expected: float) -> None:
    assert number(kind, raw) == expected


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (UINT, 0x7FFFFFF0),
        (UINT, 0x7FFFFFF2),
        (UINT, 0xFFFFFFFF),
        (SINT, 0x7FFFFFF3),
        (ULONGLONG, 0x7FFFFFFFFFFFFFF0),
        (ULONGLONG, 9223372036854775794),
        (SLONGLONG, 0x7FFFFFFFFFFFFFF2),
        (ULONGLONG, 2**64 - 1),
        (DOUBLE, bits(140737488355328.0)),
        (DOUBLE, bits(math.inf)),
        (7, 1),
        (99, 1),
    ],
)
def test_blanks_are_in_no_range(kind: int, raw: int) -> None:
    assert not any(low <= number(kind, raw) <= high for low, high in RANGES.values())


@pytest.mark.parametrize("sample", [2619, 127622, 808334905, 4294967295, 101, -1])
def test_utilisation_outside_a_hundred_is_none(sample: int) -> None:
    low, high = RANGES["gpu.util"]
    assert not low <= sample <= high


def test_power_is_measured_by_its_limit() -> None:
    assert power_bound(300_000) == 600_000
    assert power_bound(1_400_000) == 2e6
    # A limit that is not known, or that is garbage itself.
    assert power_bound(math.nan) == power_bound(0) == power_bound(4e9) == 2e6


def test_tables_are_those_of_the_catalogue() -> None:
    metrics = {name: metric for name, metric in catalogue().items() if metric.subsystem == "gpu"}
    assert set(GPU.metrics) == set(metrics)
    assert {name for name, metric in metrics.items() if metric.kind == "counter"} == COUNTERS
    assert set(RANGES) == set(metrics) - {"gpu.lost", "gpu.missing", "gpu.stale", IMPLAUSIBLE}
    assert all(low < high for low, high in RANGES.values())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("PCI:0000:cb:00", "0000:cb:00.0"),
        ("3b:00.1", "0000:3b:00.1"),
        ("00010000:01:00.0", "10000:01:00.0"),
        (" 0000:3b:00.0\n", "0000:3b:00.0"),
        ("", ""),
        ("0000:3b", ""),
        ("gpu3", ""),
    ],
)
def test_addresses_in_all_spellings(text: str, address: str) -> None:
    assert normal(text) == address


def test_a_name_stays_with_its_gpu() -> None:
    names = GpuNames()
    for index, uuid in enumerate(("GPU-a", "GPU-b", "GPU-c")):
        name = names.name(uuid, index)
        names.learn(uuid, f"00000000:{index:02X}:00.0", name)
    # The second is lost, so the third has the number of the second now.
    assert names.name("GPU-c", 1) == "gpu2"
    assert names.instance("PCI:0000:01:00") == "gpu1"
    # Another one takes the number of none that there was.
    assert names.name("GPU-d", 1) == "gpu3"
    assert names.instance("0000:77:00.0") == names.instance("?") == ""
    again = GpuNames(names.by_uuid)
    assert [again.name(uuid, 0) for uuid in ("GPU-c", "GPU-b")] == ["gpu2", "gpu1"]


def have(root: Path, address: str) -> None:
    """The driver has a GPU. What it would say of it may never come, so that a test that reads it does not end."""
    directory = root / "driver/nvidia/gpus" / address
    directory.mkdir(parents=True)
    os.mkfifo(directory / "information")


def test_names_from_the_driver_alone(tmp_path: Path) -> None:
    for address in ("0000:b3:00.0", "0000:19:00.0", "0000:4c:00.0"):
        have(tmp_path, address)
    names = GpuNames()
    names.learn_driver(str(tmp_path))
    assert [names.instance(f"{bus}:00.0") for bus in ("19", "4c", "b3")] == ["gpu0", "gpu1", "gpu2"]
    # The library agrees later, whichever number it gives, and so does a process that is told what was known.
    for known in (names, GpuNames(names.by_uuid)):
        assert known.name("GPU-c", 0, "00000000:B3:00.0") == "gpu2"
        assert known.name("GPU-b", 0, "00000000:4C:00.0") == "gpu1"
        assert known.name("GPU-b", 2) == "gpu1"
    names.learn_driver(str(tmp_path / "nothing"))
    assert names.instance("PCI:0000:b3:00") == "gpu2"


def device(root: Path, address: str, *, vendor: str = "0x10de", kind: str = "0x030200", driver: str = "nvidia") -> Path:
    """A PCI device below `root`/sys."""
    path = root / "sys/bus/pci/devices" / address
    path.mkdir(parents=True)
    (path / "vendor").write_text(f"{vendor}\n")
    (path / "class").write_text(f"{kind}\n")
    if driver:
        (path / "driver").symlink_to(root / "drivers" / driver)
    return path


def test_gpus_on_the_bus(tmp_path: Path) -> None:
    bus = Bus({"sys": str(tmp_path / "sys"), "proc": str(tmp_path / "proc")})
    assert bus.gpus() == frozenset()
    device(tmp_path, "0000:19:00.0")
    device(tmp_path, "0000:1a:00.0", kind="0x030000")
    device(tmp_path, "0000:1b:00.0", driver="")
    device(tmp_path, "0000:1c:00.0", driver="vfio-pci")
    device(tmp_path, "0000:1d:00.0", kind="0x068000")
    device(tmp_path, "0000:1e:00.0", vendor="0x1002")
    (device(tmp_path, "0000:19:00.4") / "physfn").symlink_to(tmp_path)
    assert bus.gpus() == {"0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0"}
    # In a container that may use only one of those that the driver has.
    have(tmp_path / "proc", "0000:1a:00.0")
    assert bus.gpus() == {"0000:1a:00.0", "0000:1b:00.0"}


def test_library_at_a_path(tmp_path: Path) -> None:
    path = tmp_path / "libnvidia-ml.so.1"
    assert not library(str(path))
    path.touch()
    assert library(str(path))


def test_frames_arrive_in_any_pieces() -> None:
    said: list[wire.Said] = [
        wire.Hello((wire.GpuId("gpu0", "GPU-a", "0000:19:00.0", "L4 \ufffd"),), (("", "x"),), (("a", "b"),), ("note",)),
        wire.Xid("gpu3", 79, 5),
        wire.Lost("gpu1", "GPU is lost"),
        wire.Down("no driver", True),
    ]
    stream = b"".join(wire.say(one) for one in said) + wire.pack(
        wire.VALUES, wire.TIME.pack(7) + array("d", [1.5]).tobytes()
    )
    for size in (1, 3, 17, len(stream)):
        frames = wire.Frames()
        found = [frame for start in range(0, len(stream), size) for frame in frames.feed(stream[start : start + size])]
        assert [wire.heard(kind, payload) for kind, payload in found[:-1]] == said
        assert found[-1] == (wire.VALUES, wire.TIME.pack(7) + array("d", [1.5]).tobytes())


@pytest.mark.parametrize("stream", [b"\0\0\0\0\x63", b"\xff\xff\xff\xff\x02", b"ERR! N/A N/A\n"])
def test_a_stream_that_holds_no_frames_is_refused(stream: bytes) -> None:
    with pytest.raises(ValueError, match="no frame"):
        list(wire.Frames().feed(stream))


@pytest.mark.parametrize("payload", [b"{", b"[]", b"5", b'{"gpus": [{}]}', b'{"reason": 1, "more": 2}', b"null"])
def test_a_frame_that_cannot_be_understood_is_a_value_error(payload: bytes) -> None:
    for kind in (wire.HELLO, wire.XID, wire.LOST, wire.DOWN):
        with pytest.raises(ValueError, match="kind|Expecting|delimiter"):
            wire.heard(kind, payload)


def texts(hello: object, packed: list[float] | None, state: object, stale: float) -> dict[str, bytes]:
    """Texts as the source gives them."""
    return {
        HELLO_KEY: json.dumps(hello).encode(),
        VALUES_KEY: b"" if packed is None else array("d", packed).tobytes(),
        STATE_KEY: json.dumps(state).encode(),
        STALE_KEY: array("d", [stale]).tobytes(),
    }


def test_the_parser_puts_together_what_child_and_parent_know() -> None:
    parser = GPU.parser()
    hello = {"channels": [["gpu.temp", "gpu0"], ["gpu.temp", "gpu1"]], "notes": ["a note"]}
    state = {"lost": {"gpu0": 0, "gpu1": 0}, "missing": 0}
    first = parser(texts(hello, [60, 61], state, 0))
    assert values(first) == {
        ("gpu.temp", "gpu0"): 60,
        ("gpu.temp", "gpu1"): 61,
        ("gpu.lost", "gpu0"): 0,
        ("gpu.lost", "gpu1"): 0,
        ("gpu.missing", ""): 0,
        ("gpu.stale", ""): 0,
    }
    assert first[0].notes == ("a note",)
    # The channels stay the same while there is no answer, and when a GPU is lost.
    hung = parser(texts(hello, None, state, 7.5))
    lost = parser(texts(hello, [60, math.nan], {"lost": {"gpu0": 0, "gpu1": 1}, "missing": 1}, 0))
    assert hung[0] is first[0] is lost[0]
    assert math.isnan(values(hung)["gpu.temp", "gpu0"])
    assert values(hung)["gpu.stale", ""] == 7.5
    assert values(lost)["gpu.lost", "gpu1"] == values(lost)["gpu.missing", ""] == 1
    # A lost GPU that the next process does not list any more is still one that is lost.
    later = parser(
        texts({"channels": [["gpu.temp", "gpu0"]], "notes": []}, [60], {"lost": {"gpu1": 1}, "missing": 1}, 0)
    )
    assert values(later)["gpu.lost", "gpu1"] == 1
    assert ("gpu.temp", "gpu1") not in values(later)


def test_the_parser_refuses_values_that_fit_no_channels() -> None:
    parser = GPU.parser()
    hello = {"channels": [["gpu.temp", "gpu0"]], "notes": []}
    with pytest.raises(ParseError):
        parser(texts(hello, [1, 2], {"lost": {}, "missing": None}, 0))
    wrongs: list[object] = [{}, [], {"channels": 5, "notes": []}, {"channels": [["gpu.temp"]], "notes": []}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="understood|unpack"):
            parser(texts(wrong, [1], {"lost": {}, "missing": 0}, 0))
    assert math.isnan(values(parser(texts(hello, [5], {"lost": {}, "missing": None}, 0)))["gpu.missing", ""])
