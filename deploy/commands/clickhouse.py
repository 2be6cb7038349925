"""`reveal clickhouse`: the local ClickHouse in the foreground."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "run a local ClickHouse (HTTP interface) in the foreground"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--directory", type=Path, required=True, help="where its data lives")
    parser.add_argument("--port", type=int, default=8123, help="HTTP port (default %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument(
        "--memory-mb", type=int, default=512, help="what all queries together may hold, in MiB (default %(default)s)"
    )
    parser.add_argument(
        "--password-file",
        type=Path,
        help="file with the password of user default (else REVEAL_CLICKHOUSE_PASSWORD; "
        "REVEAL_CLICKHOUSE_READER_PASSWORD is that of the user reader)",
    )


def run(args: argparse.Namespace) -> int:
    """Serves until SIGTERM or Ctrl-C: status 0 after those, 1 if it cannot start."""
    import os  # noqa: PLC0415
    import sys  # noqa: PLC0415

    from deploy import logs  # noqa: PLC0415
    from deploy.clickhouse.access import Access  # noqa: PLC0415
    from deploy.clickhouse.server import ServerConfig, ServerError, serve  # noqa: PLC0415

    logs.configure(os.environ)
    try:
        password = os.environ.get("REVEAL_CLICKHOUSE_PASSWORD")
        if args.password_file is not None:
            try:
                password = args.password_file.read_text().rstrip("\r\n")
            except OSError as error:
                raise ServerError(f"the password file cannot be read: {error}") from None
        access = Access(password or None, os.environ.get("REVEAL_CLICKHOUSE_READER_PASSWORD") or None)
        serve(ServerConfig(args.directory, args.port, args.host, args.memory_mb << 20, access))
    except ServerError as error:
        print(f"reveal clickhouse: {error}", file=sys.stderr)
        return 1
    return 0
