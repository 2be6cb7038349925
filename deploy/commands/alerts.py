"""`reveal alerts`: the alert fan-out, and what people ask of it."""

from __future__ import annotations

import argparse
import sys
from typing import Final

HELP: Final = "tell people and machines of episodes; list, acknowledge and silence alerts"

EPILOG: Final = """\
examples:
  reveal alerts list
  reveal alerts ack 3f2a --comment "looking at it"
  reveal alerts silence --match rack=r12 --for 4h --comment "new switches"
  reveal alerts test routing.toml --since 24h
  reveal alerts feedback 3f2a expected --for 7d
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("run", help="the service: until SIGTERM", description="Run the service until SIGTERM.")

    listed = actions.add_parser("list", help="alerts, silences and what is expected")
    listed.add_argument("--all", action="store_true", help="also what is over")
    listed.add_argument("--json", action="store_true", help="print JSON")

    ack = actions.add_parser("ack", help="say that you look after an alert")
    ack.add_argument("id", metavar="ID", help="of the alert, its beginning, or its key")

    silence = actions.add_parser("silence", help="tell nobody, for a while; the alert itself goes on")
    silence.add_argument("id", nargs="?", metavar="ID", help="one alert")
    silence.add_argument(
        "--match",
        action="append",
        default=[],
        metavar="NAME=PATTERN",
        help="alerts of hosts: host, subsystem, cause, severity (the least) or a label; several must all fit",
    )
    silence.add_argument("--for", dest="span", default="2h", metavar="SPAN", help="such as 90m, 4h (default: 2h)")
    silence.add_argument("--starts", metavar="TIME", help="later, such as 2026-01-31T22:00Z: a maintenance window")

    unsilence = actions.add_parser("unsilence", help="end a silence, or what was marked as expected")
    unsilence.add_argument("id", metavar="ID", help="as `reveal alerts list` shows it")

    feedback = actions.add_parser("feedback", help="say whether an alert was right")
    feedback.add_argument("id", metavar="ID", help="of the alert, its beginning, or its key")
    feedback.add_argument("verdict", choices=("true", "false", "expected"))
    feedback.add_argument("--for", dest="span", metavar="SPAN", help="expected: how long (default: a week)")

    for action in (ack, silence, feedback):
        action.add_argument("--comment", default="", metavar="TEXT")
        action.add_argument("--by", default="", metavar="NAME", help="who (default: your login name)")

    test = actions.add_parser("test", help="show what a routing file would have told whom; sends nothing")
    test.add_argument("routing", metavar="FILE")
    test.add_argument("--since", default="24h", metavar="SPAN", help="episodes of this time (default: 24h)")
    test.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Do what is asked; status 1, with a line on stderr, when that is not possible. Raises RoutingError."""
    from sinks.alerts.kafka import StationError  # noqa: PLC0415

    try:
        if args.action == "run":
            from deploy.alerts_service import serve  # noqa: PLC0415

            return serve(args.environ, args.file)
        from deploy.alerts import AlertsError, obey  # noqa: PLC0415

        try:
            print(obey(args))
        except AlertsError as error:
            print(f"reveal alerts: {error}", file=sys.stderr)
            return 1
    except StationError as error:
        print(f"reveal alerts: {error}", file=sys.stderr)
        return 1
    return 0
