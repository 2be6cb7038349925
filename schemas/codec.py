"""Records to bytes and back: Avro single-object encoding (C3 01, CRC-64-AVRO fingerprint of the schema, body).

A reader finds the writer's schema among all published versions and resolves it to the current one. What cannot be
read is `Rejected` with one of REASONS, to count by, and a detail in words; nothing else ever leaves `decode`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import fastavro
import numpy as np
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
from numpy.typing import NDArray

from schemas.catalogue import SUBSYSTEMS, Metric, metrics_of, schema_text
from schemas.matrices import KNOWN, Columns, Form, Matrices, columns, shared, side_by_side
from schemas.records import (
    Alert,
    DeadLetter,
    Delivery,
    DetectorScore,
    Episode,
    Event,
    Evidence,
    Feedback,
    Record,
    StateRecord,
    Telemetry,
    Verdict,
)
from schemas.versions import published

MARKER: Final = b"\xc3\x01"
HEADER_BYTES: Final = 10
MAX_COUNT: Final = 10_000
MAX_SPAN_MS: Final = 60_000
MAX_INSTANCES: Final = 65_536
ALIKE: Final = 7
"""So many more forms are remembered for a size."""
REASONS: Final = (
    "empty",
    "not-avro",
    "unknown-schema",
    "unreadable-body",
    "wrong-record",
    "wrong-dimensions",
    "not-finite",
)
SEVERITIES: Final = ("info", "warning", "critical")
RESULT_SCHEMAS: Final[Mapping[str, type]] = {
    "verdict": Verdict,
    "anomaly": Episode,
    "dead": DeadLetter,
    "state": StateRecord,
    "event": Event,
    "alert": Alert,
    "delivery": Delivery,
    "feedback": Feedback,
}
Result = Verdict | Episode | DeadLetter | StateRecord | Event | Alert | Delivery | Feedback


Instances = Mapping[str, tuple[str, ...]]


class Rejected(Exception):
    """A message that cannot be used. `reason` is one of REASONS, `detail` says what exactly was wrong."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Schema:
    """A current schema with its parsed form, its frame header and, for telemetry, its metrics, the schema of what comes
    before the instances, and what bodies went on with from there: instances, as they were written, and forms of
    matrices, by the size of both together; and which columns both make together. A host sends the same second after
    second.
    """

    name: str
    parsed: dict[str, Any]
    header: bytes
    metrics: tuple[Metric, ...]
    head: dict[str, Any]
    forms: dict[int, tuple[Form, ...]]
    instances: dict[bytes, Instances]
    fitting: dict[tuple[Form, bytes, int], Columns]


@dataclass(frozen=True, slots=True)
class Writer:
    """A published schema that some writer may still use."""

    name: str
    parsed: dict[str, Any]
    current: bool


def encode(record: Record) -> bytes:
    """Frame and body of `record`, written with the current schema.

    Raises ValueError for a metric that the catalogue does not know or a matrix of the wrong shape.
    """
    if isinstance(record, Telemetry):
        schema = current_schema(record.subsystem)
        body = telemetry_to_avro(record, schema)
    else:
        schema = current_schema(_NAMES[type(record)])
        body = _result_dict(record)
    out = io.BytesIO()
    out.write(schema.header)
    fastavro.schemaless_writer(out, schema.parsed, body)
    return out.getvalue()


def decode(data: bytes | None) -> Record:
    """Record in `data`. Raises Rejected, and nothing else, for whatever cannot be used."""
    if not data:
        raise Rejected("empty", "the message has no value")
    if data[:2] != MARKER:
        raise Rejected("not-avro", f"starts with {data[:2].hex()}, not with the Avro single-object marker c301")
    writer = _writers().get(data[2:HEADER_BYTES])
    if writer is None:
        raise Rejected("unknown-schema", f"no published schema has the fingerprint {data[2:HEADER_BYTES].hex()}")
    schema = current_schema(writer.name)
    body = io.BytesIO(data)
    body.seek(HEADER_BYTES)
    if schema.metrics and writer.current and (read := _quickly(data, body, schema)) is not None:
        return read
    try:
        values: Any = fastavro.schemaless_reader(body, writer.parsed, None if writer.current else schema.parsed)
    except Exception as error:  # fastavro raises whatever its decoding trips over
        raise Rejected("unreadable-body", f"{writer.name}: {type(error).__name__}: {error}") from None
    if body.tell() != len(data):
        raise Rejected("unreadable-body", f"{writer.name}: {len(data) - body.tell()} bytes left over")
    if schema.metrics:
        read = telemetry_from_avro(values, schema)
        if writer.current:
            _remember(data, schema, Form.of([values[metric.field] for metric in schema.metrics]), read.instances)
        return read
    return _result(values, schema)


def _quickly(data: bytes, body: io.BytesIO, schema: Schema) -> Telemetry | None:
    """Telemetry in `data`, whose `body` goes on as others did; None for any other."""
    try:
        head: Any = fastavro.schemaless_reader(body, schema.head, None)
    except Exception:  # whatever it is, who reads all of it says so
        head = None
    start = body.tell()
    if head is not None:
        for form in schema.forms.get(len(data) - start, ()):
            end = len(data) - form.parts.size
            written = data[start:end]
            instances = schema.instances.get(written)
            if instances is not None and (matrices := form.read(data, end)) is not None:
                _check_head(head)
                place = (form, written, head["count"])
                if (there := schema.fitting.get(place)) is None:
                    if len(schema.fitting) >= 4 * KNOWN:
                        schema.fitting.clear()
                    there = schema.fitting[place] = _fitting(schema, form.sizes, head["count"], instances)
                return _telemetry(head, instances, schema, there, matrices)
    body.seek(HEADER_BYTES)
    return None


def _remember(data: bytes, schema: Schema, form: Form, instances: Instances) -> None:
    """Remember how the body of sound telemetry in `data` goes on."""
    body = io.BytesIO(data)
    body.seek(HEADER_BYTES)
    fastavro.schemaless_reader(body, schema.head, None)
    start, end = body.tell(), len(data) - form.parts.size
    for known, most in ((schema.forms, KNOWN), (schema.instances, 4 * KNOWN)):
        if len(known) >= most:
            known.clear()
    alike = [each for each in schema.forms.get(len(data) - start, ()) if each.sizes != form.sizes]
    schema.forms[len(data) - start] = (form, *alike[:ALIKE])
    schema.instances[data[start:end]] = instances


def decode_telemetry(data: bytes | None) -> Telemetry:
    """Telemetry in `data`; any other record is Rejected as wrong-record."""
    record = decode(data)
    if not isinstance(record, Telemetry):
        raise Rejected("wrong-record", f"expected telemetry, got {type(record).__name__}")
    return record


@cache
def current_schema(name: str) -> Schema:
    """Current schema `name` (a subsystem, or one of RESULT_SCHEMAS)."""
    raw = json.loads(schema_text(name))
    metrics = tuple(metrics_of(name, raw)) if name in SUBSYSTEMS else ()
    before = raw["fields"][: len(raw["fields"]) - len(metrics)]
    if any("metric" in field for field in before) or (metrics and before[-1]["name"] != "instances"):
        raise ValueError(f"schema {name}: metrics must come last, and instances before them")
    head = _parsed({**raw, "fields": before[:-1]})
    return Schema(name, _parsed(raw), MARKER + schema_fingerprint(raw), metrics, head, {}, {}, {})


def schema_fingerprint(schema: Mapping[str, Any]) -> bytes:
    """CRC-64-AVRO of the parsing canonical form, 8 bytes little-endian as in the frame."""
    value: str = fingerprint(to_parsing_canonical_form(dict(schema)), "CRC-64-AVRO")
    return bytes.fromhex(value)


@cache
def _writers() -> Mapping[bytes, Writer]:
    current = {current_schema(name).header[2:]: name for name in (*SUBSYSTEMS, *RESULT_SCHEMAS)}
    writers: dict[bytes, Writer] = {}
    for name in (*SUBSYSTEMS, *RESULT_SCHEMAS):
        for version in published(name):
            mark = schema_fingerprint(version)
            writers[mark] = Writer(name, _parsed(version), current.get(mark) == name)
    for mark, name in current.items():
        writers.setdefault(mark, Writer(name, current_schema(name).parsed, True))
    return writers


def _parsed(schema: Mapping[str, Any]) -> dict[str, Any]:
    # A names dictionary of its own, so that versions of one record do not collide.
    parsed: Any = parse_schema(json.loads(json.dumps(schema)), named_schemas={})
    return dict(parsed)


def telemetry_to_avro(record: Telemetry, schema: Schema) -> dict[str, Any]:
    """Avro datum of `record`. Raises ValueError as `encode` does."""
    body: dict[str, Any] = {
        "host": record.host,
        "session": record.session,
        "sequence": record.sequence,
        "start_ns": record.start_ns,
        "period_ms": record.period_ms,
        "count": record.count,
        "dropped": record.dropped,
        "agent": record.agent,
        "instances": {name: list(names) for name, names in record.instances.items()},
    }
    known = 0
    for metric in schema.metrics:
        matrix = record.metrics.get(metric.name)
        if matrix is None:
            continue
        known += 1
        if matrix.shape != (record.count, len(record.instances.get(metric.dimension, ()))):
            raise ValueError(
                f"{metric.name}: shape {matrix.shape} does not fit {record.count} samples of {metric.dimension}"
            )
        body[metric.field] = np.ascontiguousarray(matrix, dtype="<f4").tobytes()
    if known != len(record.metrics):
        unknown = set(record.metrics) - {metric.name for metric in schema.metrics}
        raise ValueError(f"not metrics of {record.subsystem}: {', '.join(sorted(unknown))}")
    return body


def telemetry_from_avro(values: Mapping[str, Any], schema: Schema) -> Telemetry:
    """Telemetry in an Avro datum of the current schema. Raises Rejected as `decode` does."""
    fields = [values[metric.field] for metric in schema.metrics]
    sizes = tuple(None if field is None else len(field) for field in fields)
    instances = {name: shared(tuple(names)) for name, names in values["instances"].items()}
    for dimension, names in instances.items():
        if len(names) > MAX_INSTANCES or len(set(names)) != len(names):
            raise Rejected("wrong-dimensions", f"dimension {dimension} names {len(names)} instances, not all different")
    _check_head(values)
    there = _fitting(schema, sizes, values["count"], instances)
    return _telemetry(values, instances, schema, there, [field for field in fields if field is not None])


def _check_head(values: Mapping[str, Any]) -> None:
    """Raises Rejected for what comes before the instances and cannot be."""
    count, period_ms = values["count"], values["period_ms"]
    if not 1 <= count <= MAX_COUNT or period_ms < 1 or values["sequence"] < 0 or values["start_ns"] <= 0:
        detail = f"count {count}, period {period_ms} ms, sequence {values['sequence']}, start {values['start_ns']} ns"
        raise Rejected("wrong-dimensions", detail)
    if count * period_ms > MAX_SPAN_MS:
        raise Rejected("wrong-dimensions", f"{count} samples every {period_ms} ms span more than {MAX_SPAN_MS} ms")
    if not values["host"] or "\0" in values["host"]:
        raise Rejected("wrong-record", f"host name {values['host']!r}")


def _telemetry(
    values: Mapping[str, Any],
    instances: Instances,
    schema: Schema,
    there: Columns,
    matrices: Sequence[bytes],
) -> Telemetry:
    """Telemetry with these matrices, which fill the columns `there`; `values` are what comes before the instances."""
    cells = side_by_side(matrices, values["count"], there)
    flaws: tuple[str, ...] = ()
    infinite = np.isinf(cells)
    if np.count_nonzero(infinite):
        counts = [(name, int(infinite[:, place].sum())) for name, place in there.places.items()]
        flaws = tuple(f"{name}: {number} infinite values, taken as absent" for name, number in counts if number)
        cells[infinite] = np.nan
    return Telemetry(
        subsystem=schema.name,
        host=values["host"],
        session=values["session"],
        sequence=values["sequence"],
        start_ns=values["start_ns"],
        period_ms=values["period_ms"],
        count=values["count"],
        instances=instances,
        metrics=Matrices(cells, there),
        dropped=values["dropped"],
        agent=values["agent"],
        flaws=flaws,
    )


def _fitting(schema: Schema, sizes: tuple[int | None, ...], count: int, instances: Instances) -> Columns:
    """The columns of the metrics that are there. Raises Rejected where sizes (bytes of each field) do not fit `count`
    samples of these instances of each dimension.
    """
    widths: dict[str, int] = {}
    for metric, size in zip(schema.metrics, sizes, strict=True):
        if size is None:
            continue
        width = len(instances.get(metric.dimension, ()))
        if size != 4 * count * width or not width:
            detail = f"{metric.name}: {size} bytes for {count} samples of {width} instances of {metric.dimension}"
            raise Rejected("wrong-dimensions", detail)
        widths[metric.name] = width
    return columns(tuple(widths), tuple(widths.values()))


_NAMES: Final[Mapping[type, str]] = {kind: name for name, kind in RESULT_SCHEMAS.items()}


def _result_dict(record: Result) -> dict[str, Any]:
    body: dict[str, Any] = {name: getattr(record, name) for name in record.__slots__}
    if isinstance(record, Verdict):
        body["scores"] = [{name: getattr(score, name) for name in DetectorScore.__slots__} for score in record.scores]
    elif isinstance(record, Episode):
        body["evidence"] = [{name: getattr(row, name) for name in Evidence.__slots__} for row in record.evidence]
    elif isinstance(record, StateRecord):
        body["arrays"] = {
            name: {"dtype": array.dtype.str, "shape": list(array.shape), "data": array.tobytes()}
            for name, array in record.arrays.items()
        }
    return body


def _result(values: dict[str, Any], schema: Schema) -> Result:
    kind = RESULT_SCHEMAS[schema.name]
    if kind is Verdict:
        values["scores"] = tuple(DetectorScore(**score) for score in values["scores"])
    elif kind is Episode:
        values["evidence"] = tuple(Evidence(**row) for row in values["evidence"])
        values["checks"] = tuple(values["checks"])
    elif kind is Event:
        _check_event(values)
    elif kind is StateRecord:
        values["arrays"] = {name: _array(name, array) for name, array in values["arrays"].items()}
    elif kind in (Alert, Delivery):
        values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    record: Result = kind(**values)
    return record


def _check_event(values: Mapping[str, Any]) -> None:
    if not values["host"] or "\0" in values["host"]:
        raise Rejected("wrong-record", f"host name {values['host']!r}")
    if values["subsystem"] not in SUBSYSTEMS:
        raise Rejected("wrong-record", f"subsystem {values['subsystem']!r}")
    if values["severity"] not in SEVERITIES:
        raise Rejected("wrong-record", f"severity {values['severity']!r}")
    if not 0 < values["time_ns"] < 2**63 or values["sequence"] < 0:
        raise Rejected("wrong-record", f"time {values['time_ns']} ns, sequence {values['sequence']}")


def _array(name: str, array: Mapping[str, Any]) -> NDArray[np.generic]:
    try:
        dtype = np.dtype(array["dtype"])
        if dtype.hasobject:
            raise ValueError("object arrays are refused")
        return np.frombuffer(array["data"], dtype=dtype).reshape(array["shape"])
    except (TypeError, ValueError) as error:
        raise Rejected("wrong-dimensions", f"array {name}: {error}") from None
