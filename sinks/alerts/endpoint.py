"""The page for probes, scrapers and people with a feedback link: /healthz, /metrics and /feedback."""

from __future__ import annotations

import html
import logging
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qsl

from sinks.alerts.feedback import MEANINGS, Links
from sinks.alerts.held import short_id
from sinks.alerts.service import Status

LOG: Final = logging.getLogger(__name__)
TEXT: Final = "text/plain; charset=utf-8"
PAGE: Final = "text/html; charset=utf-8"
EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE_S: Final = 5.0
HANGING_S: Final = 60.0
MOST_BYTES: Final = 8192
MOST_NOTE: Final = 500

Answer = tuple[int, str, str]
Judge = Callable[[str, str, str, str], str]
"""Stores feedback: key, verdict, who, note; says in words what was done. Raises ValueError when it cannot be."""


class Endpoint:
    """Serves on `host`:`port` from a thread of its own until closed. Raises OSError when the port cannot be had.

    links  of the feedback page, which is off without their secret; judge stores what was said there
    """

    def __init__(
        self,
        host: str,
        port: int,
        status: Status,
        links: Links,
        judge: Judge,
        *,
        clock: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        pages = Pages(status, links, judge, clock, now_ns)

        class Handler(BaseHTTPRequestHandler):
            timeout = PATIENCE_S
            server_version = "reveal-alerts"
            sys_version = ""

            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                self._answer(lambda: pages.get(path, query))

            def do_POST(self) -> None:
                path, _, query = self.path.partition("?")
                length = self.headers.get("Content-Length", "")
                if not length.isdecimal() or int(length) > MOST_BYTES:
                    self._answer(lambda: (413, TEXT, "too much\n"))
                    return
                form = self.rfile.read(int(length)).decode("utf-8", "replace")
                self._answer(lambda: pages.post(path, query, form))

            def _answer(self, page: Callable[[], Answer]) -> None:
                try:
                    code, kind, text = page()
                except Exception:
                    LOG.exception("a page cannot be served")
                    code, kind, text = 500, TEXT, "a fault of the service; its log says which\n"
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.send_header("X-Frame-Options", "DENY")
                self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """A path may hold a signature."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that went away is no news."""

        self._server = Server((host, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)


class Pages:
    """What is served, without HTTP."""

    def __init__(
        self, status: Status, links: Links, judge: Judge, clock: Callable[[], float], now_ns: Callable[[], int]
    ) -> None:
        self._status = status
        self._links = links
        self._judge = judge
        self._clock = clock
        self._now_ns = now_ns

    def get(self, path: str, query: str) -> Answer:
        """The page at `path`. A GET changes nothing: mail scanners follow links."""
        if path == "/healthz":
            silent = self._clock() - self._status.turned_s
            if silent > HANGING_S:
                return 503, TEXT, f"the loop has not turned for {silent:.0f} s\n"
            return 200, TEXT, "ok\nowner\n" if self._status.owner else "ok\nstanding by\n"
        if path == "/metrics":
            return 200, EXPOSITION, "".join(f"{line}\n" for line in exposition(self._status))
        if path == "/feedback" and self._links.secret:
            values = dict(parse_qsl(query))
            if why := self._links.check(values, self._now_ns()):
                return 403, PAGE, _page(why)
            return 200, PAGE, _page(_question(values), _FORM)
        return 404, TEXT, "there is /healthz, /metrics\n"

    def post(self, path: str, query: str, form: str) -> Answer:
        """Store the feedback of a link."""
        if path != "/feedback" or not self._links.secret:
            return 404, TEXT, "there is /healthz, /metrics\n"
        values = dict(parse_qsl(query))
        if why := self._links.check(values, self._now_ns()):
            return 403, PAGE, _page(why)
        said = dict(parse_qsl(form))
        by, note = (" ".join(said.get(name, "").split())[:MOST_NOTE] for name in ("by", "note"))
        try:
            done = self._judge(values["alert"], values["verdict"], by, note)
        except ValueError as error:
            return 409, PAGE, _page(str(error))
        return 200, PAGE, _page(done)


def exposition(status: Status) -> Iterator[str]:
    """Prometheus' text of what the service says of itself."""
    for name, kind, text, value in (
        ("owner", "gauge", "Whether this instance owns the alerts", int(status.owner)),
        ("episodes_total", "counter", "States of episodes read", status.episodes),
        ("unreadable_total", "counter", "Messages that hold no episode", status.unreadable),
    ):
        yield from _family(name, kind, text, [("", value)])
    yield from _family(
        "held", "gauge", "Alerts by state", [(f'{{state="{state}"}}', n) for state, n in sorted(status.alerts.items())]
    )
    yield from _family(
        "transitions_total",
        "counter",
        "States of alerts published",
        [(f'{{state="{state}"}}', n) for state, n in sorted(status.transitions.items())],
    )
    yield from _family(
        "tries_total",
        "counter",
        "Tries to tell a receiver",
        [(f'{{receiver="{_escaped(name)}",status="{how}"}}', n) for (name, how), n in sorted(status.tries.items())],
    )
    yield from _family(
        "waiting",
        "gauge",
        "Alerts that a receiver should know of and does not",
        [(f'{{receiver="{_escaped(name)}"}}', n) for name, n in sorted(status.waiting.items())],
    )


def _family(name: str, kind: str, text: str, values: list[tuple[str, int]]) -> Iterator[str]:
    yield f"# HELP reveal_alerts_{name} {text}"
    yield f"# TYPE reveal_alerts_{name} {kind}"
    for labels, value in values:
        yield f"reveal_alerts_{name}{labels} {value}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _question(values: dict[str, str]) -> str:
    key, verdict = values["alert"], values["verdict"]
    return f"Alert {short_id(key)} ({key}): is it {MEANINGS.get(verdict, verdict)}?"


_FORM: Final = (
    '<form method="post"><p><label>Your name <input name="by" maxlength="100"></label></p>'
    '<p><label>Note <input name="note" maxlength="500" size="60"></label></p>'
    "<p><button>Yes, store it</button></p></form>"
)


def _page(text: str, more: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Reveal: feedback</title>'
        f'<body style="font-family:sans-serif;max-width:40em;margin:3em auto"><h1>Feedback</h1>'
        f"<p>{html.escape(text)}</p>"
        f"{more}</body></html>\n"
    )
