"""The `reveal` command: one table of commands, settings, and errors told in words."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from schemas.settings import read_file

COMMANDS: Final[Mapping[str, str]] = {
    "up": "deploy.commands.up",
    "demo": "deploy.commands.demo",
    "sql": "deploy.commands.sql",
    "query": "deploy.commands.query",
    "report": "deploy.commands.report",
    "models": "deploy.commands.models",
    "metrics": "deploy.commands.metrics",
    "settings": "deploy.commands.settings",
    "agent": "deploy.commands.agent",
    "worker": "deploy.commands.worker",
    "warehouse": "deploy.commands.warehouse",
    "alerts": "deploy.commands.alerts",
    "kafka": "deploy.commands.kafka",
    "clickhouse": "deploy.commands.clickhouse",
    "topics": "deploy.commands.topics",
    "record": "deploy.commands.record",
    "replay": "deploy.commands.replay",
    "backtest": "deploy.commands.backtest",
    "fleet": "deploy.commands.fleet",
}

# Errors whose text is meant for the person at the terminal. By name, so that no command loads what another one needs.
EXPECTED: Final = frozenset(
    {
        "schemas.settings.SettingsError",
        "deploy.stack.errors.StackError",
        "deploy.kafka.errors.LocalKafkaError",
        "deploy.clickhouse.server.ServerError",
        "schemas.recording.RecordingError",
        "sinks.warehouse.store.StoreError",
        "sinks.warehouse.migrate.MigrationError",
        "sinks.alerts.routing_file.RoutingError",
    }
)

UNUSABLE: Final = 2
INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status: 2 for wrong usage, wrong settings and what else a person has to
    mend, 130 after Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough, as in `reveal metrics | head`. Nothing more may be flushed into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in {"", "deploy", "schemas", "pages", "producers", "stream_processors", "sinks"}:
            raise
        print(
            f"reveal: the package {package} is not installed: "
            "pip install 'reveal[worker,sinks,embedded]' brings everything",
            file=sys.stderr,
        )
        return UNUSABLE
    except Exception as error:
        if not is_expected(error):
            raise
        print(f"reveal: {error}", file=sys.stderr)
        return UNUSABLE


def is_expected(error: BaseException) -> bool:
    """Whether the error's text is for the person at the terminal, and its traceback is not."""
    return any(f"{kind.__module__}.{kind.__qualname__}" in EXPECTED for kind in type(error).__mro__)


def _run(arguments: list[str]) -> int:
    top = _top_parser()
    if not arguments:
        top.print_help(sys.stderr)
        return UNUSABLE
    chosen = top.parse_args(arguments)
    module = importlib.import_module(COMMANDS[chosen.command])
    parser = argparse.ArgumentParser(prog=f"reveal {chosen.command}", description=module.HELP)
    _add_config(parser)
    module.configure(parser)
    args = parser.parse_args(chosen.arguments)
    environ = dict(os.environ)
    config = args.config or chosen.config or environ.get("REVEAL_CONFIG", "")
    if config:
        # Also for the services that this command starts, wherever they run.
        environ["REVEAL_CONFIG"] = str(Path(config).absolute())
    args.environ = environ
    args.file = read_file(Path(config) if config else None)
    status: int = module.run(args)
    sys.stdout.flush()
    return status


def _top_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reveal",
        usage="reveal [-h] [--version] [--config FILE] COMMAND ...",
        description="Finds hardware anomalies in fleets that run machine-learning workloads.",
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-h", "--help", action=_Help, nargs=0, help="show this help and exit")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    _add_config(parser)
    parser.add_argument("command", metavar="COMMAND", choices=tuple(COMMANDS), help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="settings file in TOML (or REVEAL_CONFIG)")


def _command_table() -> str:
    lines = [f"  {name:<11} {importlib.import_module(module).HELP}" for name, module in COMMANDS.items()]
    return "commands (reveal COMMAND --help says more):\n" + "\n".join(lines)


class _Help(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.epilog = _command_table()
        parser.print_help()
        parser.exit()


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"reveal {metadata.version('reveal')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
