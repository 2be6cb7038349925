"""Codec: what goes in comes out, and what cannot be read is rejected with its reason."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import fields, replace

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from schemas.catalogue import SUBSYSTEMS, schema_text, subsystem_metrics
from schemas.codec import Rejected, decode, decode_telemetry, encode, schema_fingerprint
from schemas.records import DeadLetter, DetectorScore, Episode, Evidence, Record, StateRecord, Telemetry, Verdict
from tests import synthetic

VERDICT = Verdict(
    host="h",
    window_start_ns=1,
    window_end_ns=2,
    state="scored",
    coverage=0.75,
    model_version=3,
    scores=(DetectorScore("zscore", 2.5, 1.5, 1e-4, True),),
    votes=1,
    severity=4.0,
    anomalous=True,
    subsystem="cpu",
    shares={"cpu": 1.0},
    episode="e1",
)
EPISODE = Episode(
    id="e1",
    revision=2,
    host="h",
    state="updated",
    start_ns=1,
    opened_ns=2,
    updated_ns=3,
    closed_ns=None,
    subsystem="cpu",
    shares={"cpu": 0.9, "memory": 0.1},
    windows=4,
    votes={"zscore": 4},
    severity=3.0,
    peak_severity=5.0,
    peak_ns=2,
    model_version=1,
    cause=None,
    explanation="why",
    evidence=(Evidence("cpu.load1", "cpu", "", "level", "tasks", 9.0, 1.0, 16.0, None, None),),
)
DEAD = DeadLetter("t", 1, 2, "worker", "not-avro", "detail", b"key", None)


def assert_same(one: Record, other: Record) -> None:
    assert type(one) is type(other)
    for item in fields(one):
        left, right = getattr(one, item.name), getattr(other, item.name)
        if item.name in ("metrics", "arrays"):
            assert left.keys() == right.keys()
            for name, array in left.items():
                np.testing.assert_array_equal(array, right[name])
                assert array.dtype == right[name].dtype
        else:
            assert left == right, item.name


@pytest.mark.parametrize("record", [VERDICT, EPISODE, DEAD], ids=lambda record: type(record).__name__)
def test_results_round_trip(record: Record) -> None:
    assert_same(decode(encode(record)), record)


@pytest.mark.parametrize("subsystem", synthetic.SUBSYSTEMS)
def test_telemetry_round_trips_bit_by_bit(subsystem: str) -> None:
    record = synthetic.second("h", subsystem, 3)
    assert_same(decode(encode(record)), record)


def test_state_round_trips_any_plain_array() -> None:
    arrays = {"f": np.arange(6, dtype="<f4").reshape(2, 3), "i": np.array([1, -2], dtype="<i2"), "none": np.zeros(0)}
    record = StateRecord("h", "model/1", json.dumps({"version": 1}), arrays)
    assert_same(decode(encode(record)), record)
    assert record.key == b"h\0model/1"


def test_absent_metric_and_absent_value_stay_absent() -> None:
    whole = synthetic.second("h", "cpu", 0)
    values = np.full((10, 1), np.nan, dtype=np.float32)
    record = replace(whole, metrics={"cpu.load1": values})
    back = decode_telemetry(encode(record))
    assert list(back.metrics) == ["cpu.load1"]
    assert np.isnan(back.metrics["cpu.load1"]).all()
    assert back.flaws == ()


def test_infinite_values_become_absent_and_are_told() -> None:
    record = synthetic.second("h", "cpu", 0)
    record.metrics["cpu.load1"][2, 0] = np.inf
    record.metrics["cpu.time.user"][0] = -np.inf
    back = decode_telemetry(encode(record))
    assert np.isnan(back.metrics["cpu.load1"][2, 0])
    assert sorted(back.flaws) == [
        "cpu.load1: 1 infinite values, taken as absent",
        "cpu.time.user: 2 infinite values, taken as absent",
    ]
    kept = np.delete(record.metrics["cpu.load1"], 2, axis=0)
    np.testing.assert_array_equal(np.delete(back.metrics["cpu.load1"], 2, axis=0), kept)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b"\x00\x00\x00\x00\x05abc", "not-avro"),
        (b"\xc3\x01", "unknown-schema"),
        (b"\xc3\x01\x00\x00\x00\x00\x00\x00\x00\x00body", "unknown-schema"),
        (encode(VERDICT)[:-1], "unreadable-body"),
        (encode(VERDICT) + b"x", "unreadable-body"),
        (encode(VERDICT)[:10], "unreadable-body"),
    ],
)
def test_unreadable_bytes_are_rejected_with_the_reason(data: bytes | None, reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        decode(data)
    assert caught.value.reason == reason
    assert caught.value.reason in codec.REASONS


def raw(subsystem: str, **changes: object) -> bytes:
    """Telemetry with fields that no sound writer would send."""
    schema = codec.current_schema(subsystem)
    body = codec.telemetry_to_avro(synthetic.second("h", subsystem, 0), schema)
    out = io.BytesIO(schema.header)
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, schema.parsed, {**body, **changes})
    return out.getvalue()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"count": 9}, "wrong-dimensions"),
        ({"count": 0}, "wrong-dimensions"),
        ({"count": 1 << 30}, "wrong-dimensions"),
        ({"period_ms": 0}, "wrong-dimensions"),
        ({"sequence": -1}, "wrong-dimensions"),
        ({"start_ns": -5}, "wrong-dimensions"),
        ({"instances": {"host": [""]}}, "wrong-dimensions"),
        ({"instances": {"host": [""], "core": ["0", "0"]}}, "wrong-dimensions"),
        ({"cpu_load1": b"abc"}, "wrong-dimensions"),
        ({"host": ""}, "wrong-record"),
        ({"host": "a\0b"}, "wrong-record"),
    ],
)
def test_wrong_dimensions_are_rejected(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        decode(raw("cpu", **changes))
    assert caught.value.reason == reason


def test_a_result_is_no_telemetry() -> None:
    with pytest.raises(Rejected, match="wrong-record"):
        decode_telemetry(encode(VERDICT))


def test_object_arrays_are_refused() -> None:
    schema = codec.current_schema("state")
    out = io.BytesIO(schema.header)
    out.seek(0, io.SEEK_END)
    body = {
        "host": "h",
        "slot": "row/0",
        "manifest": "{}",
        "arrays": {"a": {"dtype": "|O", "shape": [1], "data": b"x" * 8}},
    }
    fastavro.schemaless_writer(out, schema.parsed, body)
    with pytest.raises(Rejected, match="wrong-dimensions"):
        decode(out.getvalue())


@given(st.binary(max_size=200))
def test_no_bytes_make_decode_fail_otherwise(data: bytes) -> None:
    header = codec.current_schema("cpu").header
    for candidate in (data, header + data):
        with contextlib.suppress(Rejected):
            decode(candidate)


@given(st.integers(0, 2000), st.binary(min_size=1, max_size=8))
def test_damaged_telemetry_is_read_or_rejected(at: int, damage: bytes) -> None:
    data = bytearray(encode(synthetic.second("h", "memory", 0)))
    data[at : at + len(damage)] = damage
    with contextlib.suppress(Rejected):
        assert isinstance(decode(bytes(data)), Telemetry)


def test_encode_refuses_what_the_catalogue_does_not_know() -> None:
    record = synthetic.second("h", "cpu", 0)
    with pytest.raises(ValueError, match="not metrics of cpu: cpu.nonsense"):
        encode(replace(record, metrics={**record.metrics, "cpu.nonsense": record.metrics["cpu.load1"]}))
    with pytest.raises(ValueError, match=r"cpu.load1: shape \(10, 2\)"):
        encode(replace(record, metrics={"cpu.load1": np.zeros((10, 2), dtype=np.float32)}))


@pytest.mark.parametrize("subsystem", SUBSYSTEMS)
def test_an_older_writer_and_an_unknown_field_resolve(subsystem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that lacks the last metric, as before it was added."""
    schema = json.loads(schema_text(subsystem))
    dropped = schema["fields"].pop()
    monkeypatch.setattr(codec, "published", lambda name: (schema,) if name == subsystem else ())
    codec._writers.cache_clear()
    try:
        metric = next(iter(subsystem_metrics(subsystem).values()))
        sound = {"host": "h", "session": "s", "sequence": 0, "start_ns": 1, "period_ms": 100, "count": 1}
        body = {**sound, "instances": {metric.dimension: ["0"]}, metric.field: np.float32(7).tobytes()}
        out = io.BytesIO(codec.MARKER + schema_fingerprint(schema))
        out.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), body)
        record = decode_telemetry(out.getvalue())
        assert record.metrics[metric.name].tolist() == [[7.0]]
        assert dropped["metric"] not in record.metrics
    finally:
        codec._writers.cache_clear()
