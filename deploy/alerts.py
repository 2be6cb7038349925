"""What people ask of the alerts: read from the state in Kafka, and written there as commands."""

from __future__ import annotations

import argparse
import getpass
import io
import json
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from schemas.settings import AlertsSettings, ClickHouseSettings, KafkaSettings, load
from sinks.alerts.commands import ALERT, EXPECTED, SILENCE, Ack, decode_command, encode_command, remove
from sinks.alerts.duration import SECOND_NS, parse_duration
from sinks.alerts.feedback import MEANINGS, judge
from sinks.alerts.held import OVER, Held, decode_held, short_id
from sinks.alerts.kafka import StationError, read_state, write_commands
from sinks.alerts.matching import Matcher
from sinks.alerts.routing_file import RoutingError, matcher
from sinks.alerts.silences import Expected, Silence
from sinks.alerts.text import iso, moment, summary

UNBOUNDED: Final = 10_000


class AlertsError(Exception):
    """What is asked cannot be done; the text says why."""


def obey(args: argparse.Namespace, now_ns: Callable[[], int] = time.time_ns) -> str:
    """Do what the command line asks; what to print. Raises AlertsError, StationError, RoutingError."""
    if args.action == "test":
        from deploy.alerts_rehearsal import rehearse  # noqa: PLC0415

        clickhouse = load(ClickHouseSettings, args.environ, args.file)
        since = _span(args.since)
        return rehearse(Path(args.routing), clickhouse, args.environ, since, now_ns(), as_json=args.json)
    kafka = load(KafkaSettings, args.environ, args.file)
    if args.action == "list":
        return listing(read_state(kafka), everything=args.all, as_json=args.json)
    if args.action == "ack":
        alert = find(read_state(kafka), args.id)
        if alert.state in OVER:
            raise AlertsError(f"{alert.key} is {alert.state}: nothing is left to look after")
        write_commands(kafka, [encode_command(Ack(alert.key, args.by or _login(), args.comment))])
        return f"acknowledged: {summary(alert)}"
    if args.action == "silence":
        silence, words = _silence(args, kafka, now_ns())
        write_commands(kafka, [encode_command(silence)])
        return f"silence {silence.id}: {words}, from {moment(silence.starts_ns)} to {moment(silence.ends_ns)}"
    if args.action == "unsilence":
        return _unsilence(args, kafka)
    settings = load(AlertsSettings, args.environ, args.file)
    span_s = _span(args.span) if args.span else 86_400 * settings.expected_days
    try:
        return give_feedback(
            kafka, args.id, args.verdict, args.by or _login(), args.comment, expected_s=span_s, now_ns=now_ns
        )
    except ValueError as error:
        raise AlertsError(str(error)) from None


def give_feedback(
    kafka: KafkaSettings,
    id_: str,
    verdict: str,
    by: str,
    note: str,
    *,
    expected_s: float,
    now_ns: Callable[[], int] = time.time_ns,
) -> str:
    """Store what somebody says of an alert; in words what was done. Raises ValueError, also when Kafka is away."""
    try:
        alert, now = find(read_state(kafka), id_), now_ns()
        until_ns = now + int(expected_s * SECOND_NS)
        feedback, expected = judge(alert, verdict, until_ns=until_ns, by=by, note=note, now_ns=now)
        write_commands(kafka, [encode_command(expected)] if expected else [], [feedback])
    except (AlertsError, StationError) as error:
        raise ValueError(str(error)) from None
    quiet = f", until {moment(until_ns)}" if expected else ""
    return f"stored: {summary(alert)}: {MEANINGS[verdict]}{quiet}"


def find(state: Mapping[str, bytes], id_: str) -> Held:
    """The alert whose key is `id_`, or whose id begins with it. Raises AlertsError for none, or more than one."""
    alerts = _alerts(state)
    found = [alert for alert in alerts if alert.key == id_] or [
        alert for alert in alerts if id_ and short_id(alert.key).startswith(id_.lower())
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise AlertsError("\n".join([f"more than one alert begins with {id_}:", *(f"  {_line(one)}" for one in found)]))
    raise AlertsError(f"there is no alert {id_}; `reveal alerts list --all` shows all that are known")


def listing(state: Mapping[str, bytes], *, everything: bool, as_json: bool) -> str:
    """Alerts, silences and what is expected, as a table or JSON."""
    alerts = [alert for alert in _alerts(state) if everything or alert.state not in OVER]
    alerts.sort(key=lambda alert: (alert.state in OVER, alert.parent is not None, -alert.since_ns))
    quiet = _quiet(state)
    if as_json:
        rows = [{"id": short_id(alert.key), **json.loads(alert.encode())} for alert in alerts]
        silences = [{"kind": _kind(each), **json.loads(encode_command(each)[1] or b"{}")} for each in quiet]
        return json.dumps({"alerts": rows, "quiet": silences}, indent=2)
    out = io.StringIO()
    console = Console(file=out, width=width())
    if alerts:
        table = Table("id", "state", "severity", "alert", "told", box=None, pad_edge=False)
        for alert in alerts:
            table.add_row(short_id(alert.key), alert.state, alert.severity, _what(alert), _told(alert))
        console.print(table)
    else:
        console.print("no alert" if everything else "no alert fires; --all shows those that are over")
    if quiet:
        table = Table("id", "kind", "about", "from", "until", "by", "comment", box=None, pad_edge=False)
        for each in quiet:
            silence = isinstance(each, Silence)
            starts = moment(each.starts_ns) if isinstance(each, Silence) else ""
            ends = each.ends_ns if isinstance(each, Silence) else each.until_ns
            note = each.comment if isinstance(each, Silence) else each.note
            table.add_row(
                each.id, "silence" if silence else "expected", _about(each), starts, moment(ends), each.by, note
            )
        console.print()
        console.print(table)
    return unpadded(out.getvalue())


def unpadded(text: str) -> str:
    """A table without the blanks at the ends of its lines."""
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def width() -> int:
    """Columns to print in: those of the terminal; into a pipe a line is as long as it is."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED


def _silence(args: argparse.Namespace, kafka: KafkaSettings, now_ns: int) -> tuple[Silence, str]:
    if bool(args.id) == bool(args.match):
        raise AlertsError("give either the ID of one alert, or --match NAME=PATTERN")
    starts_ns = now_ns
    if args.starts:
        try:
            starts = datetime.fromisoformat(args.starts)
        except ValueError:
            raise AlertsError(f"--starts: {args.starts!r} is no time such as 2026-01-31T22:00Z") from None
        starts_ns = int((starts if starts.tzinfo else starts.replace(tzinfo=UTC)).timestamp()) * SECOND_NS
    ends_ns = starts_ns + int(_span(args.span) * SECOND_NS)
    if ends_ns <= now_ns:
        raise AlertsError("the silence would be over already")
    key, wanted, words = "", Matcher(), ""
    if args.id:
        alert = find(read_state(kafka), args.id)
        key, words = alert.key, summary(alert)
    else:
        match: dict[str, Any] = {}
        for text in args.match:
            name, equals, pattern = text.partition("=")
            if not (name and equals and pattern):
                raise AlertsError(f"--match: {text!r} is not NAME=PATTERN")
            match[name] = pattern if name == "severity" else [*match.get(name, []), pattern]
        try:
            wanted = matcher(match, "--match")
        except RoutingError as error:
            raise AlertsError(str(error)) from None
        words = wanted.words()
    return Silence(secrets.token_hex(4), wanted, starts_ns, ends_ns, key, args.by or _login(), args.comment), words


def _unsilence(args: argparse.Namespace, kafka: KafkaSettings) -> str:
    found = [each for each in _quiet(read_state(kafka)) if each.id.startswith(args.id)]
    if len(found) != 1:
        what = "there is no silence" if not found else "more than one silence begins with"
        raise AlertsError(f"{what} {args.id}; `reveal alerts list` shows them")
    each = found[0]
    write_commands(kafka, [remove(SILENCE if isinstance(each, Silence) else EXPECTED, each.id)])
    return f"ended: {_kind(each)} {each.id}, {_about(each)}"


def _alerts(state: Mapping[str, bytes]) -> list[Held]:
    found = []
    for key, value in state.items():
        if key.startswith(ALERT):
            try:
                found.append(decode_held(value))
            except ValueError:
                continue  # of a version that this one does not know; the service says so in its log
    return found


def _quiet(state: Mapping[str, bytes]) -> list[Silence | Expected]:
    found: list[Silence | Expected] = []
    for key, value in sorted(state.items()):
        if key.startswith((SILENCE, EXPECTED)):
            try:
                command = decode_command(key, value)
            except ValueError:
                continue
            if not isinstance(command, Ack):
                found.append(command)
    return found


def _kind(each: Silence | Expected) -> str:
    return "silence" if isinstance(each, Silence) else "expected"


def _about(each: Silence | Expected) -> str:
    if isinstance(each, Silence):
        return each.key or each.matcher.words()
    return f"{each.host}: {each.subsystem}, {each.cause or 'cause unknown'}"


def _what(alert: Held) -> str:
    reason = f" ({alert.reason})" if alert.reason else ""
    return f"{summary(alert)}{f' (told as {alert.parent})' if alert.parent else ''}{reason}"


def _told(alert: Held) -> str:
    return ", ".join(f"{name} {iso(told.at_ns)[11:19]}" for name, told in sorted(alert.told.items())) or "-"


def _line(alert: Held) -> str:
    return f"{short_id(alert.key)}  {alert.state}  {summary(alert)}"


def _span(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise AlertsError(str(error)) from None


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
