"""The routing file: TOML, checked word by word. Whatever is wrong is told with its place and what would be right."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sinks.alerts.breaker import BreakerRule
from sinks.alerts.channels import CHANNELS
from sinks.alerts.channels.options import OptionError, check_options
from sinks.alerts.duration import SECOND_NS, parse_duration
from sinks.alerts.grouping import GroupRule
from sinks.alerts.held import SEVERITIES
from sinks.alerts.limits import Limit
from sinks.alerts.matching import Matcher
from sinks.alerts.routing import Labels, Receiver, Route, Routing, SeverityRule, Timing
from sinks.alerts.silences import DAYS, Maintenance

SECTIONS: Final = (
    *("timing", "severity", "labels", "grouping", "breaker", "fleet", "links", "receivers", "routes", "maintenance"),
)
PLACEHOLDERS: Final = frozenset({"host", "episode", "key", "id"})


class RoutingError(ValueError):
    """The routing file cannot be used; the message names the place, such as receivers.oncall.channel."""


def read_routing(path: Path | None) -> Routing:
    """The routing in a file; the default for None. Raises RoutingError."""
    if path is None:
        return Routing()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RoutingError(f"cannot read the routing file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RoutingError(f"{path} is not UTF-8") from None
    try:
        return parse_routing(text)
    except RoutingError as error:
        raise RoutingError(f"{path}: {error}") from None


def parse_routing(text: str) -> Routing:
    """The routing in TOML text. Raises RoutingError."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RoutingError(f"is not TOML: {error}") from None
    _known("", content, SECTIONS)
    default = Routing()
    receivers = _receivers(content["receivers"]) if "receivers" in content else default.receivers
    routes = _routes(content["routes"], receivers) if "routes" in content else default.routes
    if "receivers" in content and "routes" not in content:
        raise RoutingError("routes: there is none, so no receiver would be told: add [[routes]] with receivers = [...]")
    if "receivers" not in content and "routes" in content:
        _used(routes, receivers)
    fleet = _table(content, "fleet", ("hosts",))
    return Routing(
        receivers=receivers,
        routes=routes,
        timing=Timing(**dict(_durations(content, "timing", Timing.__slots__))),
        severity=_severity(content),
        labels=_labels(content),
        grouping=_grouping(content),
        breaker=_breaker(content),
        maintenance=tuple(_maintenance(content)),
        fleet=_whole(fleet.get("hosts", 0), "fleet.hosts"),
        links=_links(content),
    )


def _receivers(rows: Any) -> dict[str, Receiver]:
    if not isinstance(rows, dict) or not rows:
        raise RoutingError("receivers: must be tables such as [receivers.oncall]")
    found = {}
    for name, row in rows.items():
        place = f"receivers.{name}"
        if not isinstance(row, dict):
            raise RoutingError(f"{place}: must be a table")
        channel = row.get("channel")
        if not isinstance(channel, str) or channel not in CHANNELS:
            raise RoutingError(f"{place}.channel: must be one of {', '.join(CHANNELS)}, not {channel!r}")
        kind = CHANNELS[channel]
        own = {key: value for key, value in row.items() if key not in {"channel", "limit", "updates", "resolved"}}
        try:
            check_options(kind.options, own)
        except OptionError as error:
            raise RoutingError(f"{place}.{error}") from None
        flags = {key: _flag(row.get(key, True), f"{place}.{key}") for key in ("updates", "resolved")}
        limit = _limit(row["limit"], f"{place}.limit") if "limit" in row else kind.limit
        found[name] = Receiver(name, channel, own, limit, **flags)
    return found


def _limit(row: Any, place: str) -> Limit:
    if not isinstance(row, dict):
        raise RoutingError(f"{place}: must be such as {{burst = 10, per_hour = 30}}; burst = 0 is no limit")
    _known(place, row, ("burst", "per_hour"))
    limit = Limit(
        _whole(row.get("burst", Limit().burst), f"{place}.burst"),
        _number(row.get("per_hour", Limit().per_hour), f"{place}.per_hour"),
    )
    if limit.burst and not limit.per_hour:
        raise RoutingError(f"{place}.per_hour: must be above 0, or nothing would ever go out after the burst")
    return limit


def _routes(rows: Any, receivers: Mapping[str, Receiver]) -> tuple[Route, ...]:
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise RoutingError("routes: must be tables, each under [[routes]]")
    found = []
    for number, row in enumerate(rows, 1):
        place = f"routes[{number}]"
        _known(place, row, ("match", "receivers", "continue"))
        names = _words(row.get("receivers"), f"{place}.receivers")
        found.append(Route(_matcher(row, place), names, _flag(row.get("continue", False), f"{place}.continue")))
    _used(found, receivers)
    return tuple(found)


def _used(routes: Iterable[Route], receivers: Mapping[str, Receiver]) -> None:
    for number, route in enumerate(routes, 1):
        for name in route.receivers:
            if name not in receivers:
                raise RoutingError(
                    f"routes[{number}].receivers: there is no receiver {name!r}; there are {', '.join(receivers)}"
                )


def _matcher(row: Mapping[str, Any], place: str) -> Matcher:
    match = row.get("match", {})
    if not isinstance(match, dict):
        raise RoutingError(f'{place}.match: must be such as {{severity = "critical", host = "gpu-*"}}')
    return matcher({str(name): value for name, value in match.items()}, f"{place}.match")


def matcher(match: Mapping[str, Any], place: str) -> Matcher:
    """The matcher that a table means. Raises RoutingError."""
    severity = match.get("severity", "")
    if severity and severity not in SEVERITIES:
        raise RoutingError(f"{place}.severity: must be one of {', '.join(SEVERITIES)}, the least, not {severity!r}")
    patterns = {name: _words(value, f"{place}.{name}") for name, value in match.items() if name != "severity"}
    if "scope" in patterns and (wrong := set(patterns["scope"]) - {"host", "label", "cause", "fleet"}):
        raise RoutingError(f"{place}.scope: must be host, label, cause or fleet, not {', '.join(sorted(wrong))}")
    return Matcher(patterns, severity)


def _severity(content: Mapping[str, Any]) -> SeverityRule:
    row = _table(content, "severity", SeverityRule.__slots__)
    default = SeverityRule()
    causes = row.get("causes", {})
    if not isinstance(causes, dict):
        raise RoutingError('severity.causes: must be such as {gpu_lost = "critical"}')
    for cause, severity in causes.items():
        if severity not in SEVERITIES:
            raise RoutingError(f"severity.causes.{cause}: must be one of {', '.join(SEVERITIES)}, not {severity!r}")
    rule = SeverityRule(
        _number(row.get("warning", default.warning), "severity.warning"),
        _number(row.get("critical", default.critical), "severity.critical"),
        {**default.causes, **causes},
    )
    if rule.critical < rule.warning:
        raise RoutingError("severity.critical: must not be below severity.warning")
    return rule


def _labels(content: Mapping[str, Any]) -> Labels:
    row = _table(content, "labels", ("pattern", "hosts"))
    pattern = None
    if "pattern" in row:
        try:
            pattern = re.compile(_text(row["pattern"], "labels.pattern"))
        except re.error as error:
            raise RoutingError(f"labels.pattern: is no regular expression: {error}") from None
        if not pattern.groupindex:
            raise RoutingError("labels.pattern: names no label: write such as (?P<rack>r\\d+)")
    hosts = row.get("hosts", {})
    if not isinstance(hosts, dict) or not all(isinstance(labels, dict) for labels in hosts.values()):
        raise RoutingError('labels.hosts: must be such as gpu-017 = {rack = "r12"}')
    return Labels(
        pattern,
        {
            host: {name: _text(value, f"labels.hosts.{host}.{name}") for name, value in labels.items()}
            for host, labels in hosts.items()
        },
    )


def _grouping(content: Mapping[str, Any]) -> GroupRule:
    row = _table(content, "grouping", ("window", "labels", "cause"))
    labels = row.get("labels", {})
    if not isinstance(labels, dict):
        raise RoutingError("grouping.labels: must be such as {rack = 3, zone = 10}, narrow to wide")
    return GroupRule(
        _duration(row.get("window", GroupRule().window_s), "grouping.window"),
        {name: _whole(least, f"grouping.labels.{name}") for name, least in labels.items()},
        _whole(row.get("cause", GroupRule().cause), "grouping.cause"),
    )


def _breaker(content: Mapping[str, Any]) -> BreakerRule:
    row = _table(content, "breaker", ("hosts", "share", "least", "window", "calm"))
    rule = BreakerRule()
    share = _number(row.get("share", rule.share), "breaker.share")
    if not 0 < share <= 1:
        raise RoutingError(f"breaker.share: must be above 0 and at most 1, not {share:g}")
    made = BreakerRule(
        _whole(row.get("hosts", rule.hosts), "breaker.hosts"),
        share,
        _whole(row.get("least", rule.least), "breaker.least"),
        _duration(row.get("window", rule.window_s), "breaker.window"),
        _duration(row.get("calm", rule.calm_s), "breaker.calm"),
    )
    for name, least in (("hosts", made.hosts), ("least", made.least)):
        if least < 2:
            raise RoutingError(f"breaker.{name}: must be at least 2, or each alert would be one of the fleet")
    return made


def _maintenance(content: Mapping[str, Any]) -> Iterable[Maintenance]:
    rows = content.get("maintenance", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RoutingError("maintenance: must be tables, each under [[maintenance]]")
    for number, row in enumerate(rows, 1):
        place = f"maintenance[{number}]"
        _known(place, row, ("name", "match", "starts", "ends", "days", "from", "to"))
        name, wanted = _text(row.get("name", f"window {number}"), f"{place}.name"), _matcher(row, place)
        if "starts" in row and "ends" in row:
            starts, ends = (_moment(row[key], f"{place}.{key}") for key in ("starts", "ends"))
            if ends <= starts:
                raise RoutingError(f"{place}.ends: must be later than starts")
            yield Maintenance(name, wanted, starts, ends)
        elif {"days", "from", "to"} <= set(row):
            days = _words(row["days"], f"{place}.days")
            if wrong := [day for day in days if day not in DAYS]:
                raise RoutingError(f"{place}.days: must be of {', '.join(DAYS)}, not {wrong[0]!r}")
            times = (_time_of_day(row[key], f"{place}.{key}") for key in ("from", "to"))
            yield Maintenance(name, wanted, 0, 0, tuple(DAYS.index(day) for day in days), *times)
        else:
            raise RoutingError(f"{place}: needs starts and ends, or days, from and to")


def _links(content: Mapping[str, Any]) -> dict[str, str]:
    row = content.get("links", {})
    if not isinstance(row, dict):
        raise RoutingError("links: must be a table of URL templates")
    for name, template in row.items():
        text = _text(template, f"links.{name}")
        if not text.startswith(("https://", "http://")):
            raise RoutingError(f"links.{name}: must begin with https:// or http://")
        if strange := set(re.findall(r"\{([^{}]*)\}", text)) - PLACEHOLDERS:
            told = ", ".join(sorted(PLACEHOLDERS))
            raise RoutingError(f"links.{name}: there is no {{{strange.pop()}}}; there are {told}")
    return dict(row)


def _table(content: Mapping[str, Any], name: str, known: Iterable[str]) -> Mapping[str, Any]:
    row = content.get(name, {})
    if not isinstance(row, dict):
        raise RoutingError(f"{name}: must be a table [{name}]")
    _known(name, row, known)
    return row


def _known(place: str, row: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in row:
        if name not in tuple(known):
            raise RoutingError(f"{place + '.' if place else ''}{name}: is not known; known are {', '.join(known)}")


def _durations(content: Mapping[str, Any], name: str, known: Iterable[str]) -> Iterable[tuple[str, float]]:
    for key, value in _table(content, name, known).items():
        yield key, _duration(value, f"{name}.{key}")


def _place(convert: Callable[[Any], Any], value: Any, place: str) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        raise RoutingError(f"{place}: {error}") from None


def _duration(value: Any, place: str) -> float:
    return float(_place(parse_duration, value, place))


def _number(value: Any, place: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise RoutingError(f"{place}: must be a number that is not below 0, not {value!r}")
    return float(value)


def _whole(value: Any, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RoutingError(f"{place}: must be a whole number that is not below 0, not {value!r}")
    return value


def _flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise RoutingError(f"{place}: must be true or false, not {value!r}")
    return value


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or not value:
        raise RoutingError(f"{place}: must be a text, not {value!r}")
    return value


def _words(value: Any, place: str) -> tuple[str, ...]:
    if isinstance(value, str) and value:
        return (value,)
    if isinstance(value, list) and all(isinstance(word, str) and word for word in value):
        return tuple(value)
    raise RoutingError(f"{place}: must be a text or a list of texts, not {value!r}")


def _moment(value: Any, place: str) -> int:
    if isinstance(value, str):
        value = _place(datetime.fromisoformat, value, place)
    if not isinstance(value, datetime):
        raise RoutingError(f"{place}: must be a time such as 2026-01-31T22:00:00Z, not {value!r}")
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND_NS


def _time_of_day(value: Any, place: str) -> int:
    if hasattr(value, "hour") and not isinstance(value, datetime):
        return int(value.hour * 3600 + value.minute * 60 + value.second)
    match = re.fullmatch(r"([01]?\d|2[0-4]):([0-5]\d)", value) if isinstance(value, str) else None
    if match is None:
        raise RoutingError(f'{place}: must be a time of day, UTC, such as "22:30", not {value!r}')
    return int(match[1]) * 3600 + int(match[2]) * 60
