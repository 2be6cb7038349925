"""`reveal fleet`: telemetry of hosts that do not exist, with faults whose truth is known."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from schemas.settings import AgentSettings, ClickHouseSettings, KafkaSettings, load

HELP: Final = "publish the telemetry of a simulated fleet, with faults on a schedule"
SECOND_NS: Final = 1_000_000_000
DEFAULT_PROFILE: Final = "hgx-h100"
EPILOG: Final = """\
examples:
  reveal fleet --list
  reveal fleet --hosts 8 --faults packet-loss=180+60 --faults ecc-burst=5m+30s@2 --truth truth.jsonl
  reveal fleet --profile hgx-h100=16 --profile epyc-cpu=8 --random-faults 2 --seed 7
  reveal fleet --hosts 2 --faults slow-disk --seconds 400 --speed 0 --record recording --no-kafka
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("--list", action="store_true", help="say which profiles and faults there are, and end")
    parser.add_argument("--hosts", type=_whole, metavar="N", help="hosts in all (default: 2, or what --profile says)")
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="NAME[=COUNT]",
        help=f"hardware of the hosts; those without a count share the rest (default: {DEFAULT_PROFILE})",
    )
    parser.add_argument(
        "--faults",
        action="append",
        default=[],
        metavar="NAME[=START+DURATION][@HOST]",
        help="a fault, by default 180s+60s on the first host that can have it; may be repeated",
    )
    parser.add_argument("--schedule", type=Path, metavar="FILE", help="faults from tables [[fault]] of a TOML file")
    parser.add_argument(
        "--random-faults", type=_not_negative, default=0.0, metavar="RATE", help="so many faults a host and hour"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same fleet (default: 0)")
    parser.add_argument("--seconds", type=_whole, metavar="N", help="how long (default: until Ctrl-C)")
    parser.add_argument(
        "--speed",
        type=_not_negative,
        default=1.0,
        metavar="FACTOR",
        help="1 is real time; 0 as fast as Kafka takes it (default: 1)",
    )
    parser.add_argument(
        "--start",
        type=_moment,
        metavar="TIME",
        help="time of the first sample, such as 2026-01-31T12:00:00Z (default: now, or so that"
        " the last one is now if --speed is not 1)",
    )
    parser.add_argument("--noise", type=Path, metavar="DIR", help="recording whose noise the metrics are to have")
    parser.add_argument("--record", type=Path, metavar="DIR", help="also write a recording into a new directory")
    parser.add_argument("--truth", type=Path, metavar="FILE", help="write what is wrong when, as lines of JSON")
    parser.add_argument("--no-kafka", action="store_true", help="publish nothing")
    parser.add_argument("--no-clickhouse", action="store_true", help="keep the truth out of ClickHouse")


def run(args: argparse.Namespace) -> int:
    """Simulate until the time is over, SIGINT or SIGTERM; status 1 when something could not be written or delivered."""
    from deploy.fleet import simulate  # noqa: PLC0415
    from deploy.signals import stop_flag  # noqa: PLC0415
    from producers.fleet.schedule import ScheduleError, describe  # noqa: PLC0415
    from producers.publisher import KafkaUnreachableError  # noqa: PLC0415
    from schemas.recording import RecordingError  # noqa: PLC0415

    if args.list:
        print("\n".join(describe()))
        return 0
    try:
        fleet = _fleet(args)
        with ExitStack() as stack:
            outputs = _outputs(args, len(fleet.hosts), stack)
            return 0 if simulate(fleet, outputs, args.seconds, args.speed, stop_flag()) else 1
    except (ScheduleError, RecordingError, KafkaUnreachableError, OSError) as error:
        print(f"reveal fleet: {error}", file=sys.stderr)
        return 1


def _fleet(args: argparse.Namespace) -> Any:
    from producers.fleet.noise import built_in, measure  # noqa: PLC0415
    from producers.fleet.schedule import Schedule, make_hosts, parse_fault  # noqa: PLC0415
    from producers.fleet.simulation import Fleet  # noqa: PLC0415
    from schemas.recording import read_recording  # noqa: PLC0415

    noise = built_in()
    if args.noise is not None:
        measured = measure(read_recording(args.noise))
        noise = noise.updated(measured)
        print(f"noise of {len(measured)} metrics from {args.noise}", file=sys.stderr)
    hosts = make_hosts(_counts(args.profile, args.hosts))
    schedule = Schedule(hosts, args.seed, args.random_faults)
    if args.schedule is not None:
        schedule.add(_read_schedule(args.schedule))
    schedule.add(parse_fault(text) for text in args.faults)
    # Faster than real time, a run that begins now would end in the future, where workers refuse it.
    ahead = args.seconds if args.seconds is not None and args.speed != 1 else 0
    start = args.start if args.start is not None else time.time() - ahead
    return Fleet(hosts, schedule, seed=args.seed, start_ns=int(start) * SECOND_NS, noise=noise, agent="fleet")


def _read_schedule(path: Path) -> Any:
    import tomllib  # noqa: PLC0415

    from producers.fleet.schedule import ScheduleError, parse_schedule  # noqa: PLC0415

    try:
        return parse_schedule(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ScheduleError, TypeError, ValueError) as error:
        raise ScheduleError(f"{path}: {error}") from None


def _counts(profiles: Sequence[str], hosts: int | None) -> list[tuple[str, int]]:
    """Hosts of each profile. Raises ScheduleError when the counts do not fit."""
    from producers.fleet.schedule import ScheduleError  # noqa: PLC0415

    given: dict[str, int | None] = {}
    for text in profiles or [DEFAULT_PROFILE]:
        name, equals, count = text.partition("=")
        if equals and not (count.isdecimal() and int(count)):
            raise ScheduleError(f"--profile {text}: {count!r} is no number of hosts")
        given[name] = int(count) if equals else None
    fixed = sum(count for count in given.values() if count)
    open_ = [name for name, count in given.items() if count is None]
    total = hosts if hosts is not None else fixed + 2 * len(open_)
    rest = total - fixed
    if rest < len(open_) or (rest and not open_):
        raise ScheduleError(f"--hosts {total} does not fit the counts of --profile, which make {fixed}")
    shares = {name: rest // len(open_) + (place < rest % len(open_)) for place, name in enumerate(open_)}
    return [(name, count or shares[name]) for name, count in given.items()]


def _outputs(args: argparse.Namespace, hosts: int, stack: ExitStack) -> Any:
    from deploy.fleet import Outputs  # noqa: PLC0415

    outputs = Outputs(stack)
    if not args.no_kafka:
        queue_mb = load(AgentSettings, args.environ, args.file).queue_mb
        outputs.to_kafka(load(KafkaSettings, args.environ, args.file), max(queue_mb, min(1024, hosts)))
    if args.record is not None:
        outputs.to_recording(args.record)
    if args.truth is not None:
        outputs.to_file(args.truth)
    if not args.no_clickhouse:
        outputs.to_clickhouse(load(ClickHouseSettings, args.environ, args.file))
    return outputs


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above zero, not {text}")
    return int(text)


def _not_negative(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be zero or above, not {text}")
    return value


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a time such as 2026-01-31T12:00:00Z, not {text}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment.timestamp() < 1:
        raise argparse.ArgumentTypeError(f"must be after 1970, not {text}")
    return moment.timestamp()
