"""Serves a site over HTTP to whoever asks: quick to those who are quick, and rid of those who are not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final

from pages.site import TEXT, Answer, Site

PATIENCE_S: Final = 5.0
"""So long a client may take to ask, and as long again to read."""
MOST_WAITED_FOR: Final = 64
"""Clients that are waited for at a time; one more, and that which takes longest is sent away."""
MOST_MADE: Final = 16
"""Pages made at a time."""
MOST_BYTES: Final = 8192
"""Of a form."""
LOOK_S: Final = 0.25
BUSY: Final = Answer(503, TEXT, "too many pages are being made\n")


class Server:
    """Serves `site` on `host`:`port` from a thread of its own until closed. Raises OSError when the port cannot be had.

    clock  steady, in s
    """

    def __init__(self, site: Site, host: str, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._listener = _Listener(site, host, port, clock)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(LOOK_S,), name="pages", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join(PATIENCE_S)


class _Handler(BaseHTTPRequestHandler):
    server: _Listener

    def version_string(self) -> str:
        return f"reveal-{self.server.site.service}"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self._answer(lambda: self.server.site.get(path, query))

    def do_POST(self) -> None:
        path, _, query = self.path.partition("?")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 8 and int(length) <= MOST_BYTES):
            self._answer(lambda: Answer(413, TEXT, f"a form has a length, of {MOST_BYTES} bytes at most\n"))
            return
        form = self.rfile.read(int(length))
        # Half of what somebody wanted to say is not what they said.
        if len(form) == int(length):
            self._answer(lambda: self.server.site.post(path, query, form.decode("utf-8", "replace")))

    def _answer(self, make: Callable[[], Answer]) -> None:
        answer = self.server.make(self.connection, make)
        body = answer.text.encode()
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Scrapes are no news, and a path may hold a signature."""


class _Listener(ThreadingMixIn, TCPServer):
    """A thread a client. One that is waited for has no more than PATIENCE_S, however it spreads its bytes over it."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = MOST_WAITED_FOR

    def __init__(self, site: Site, host: str, port: int, clock: Callable[[], float]) -> None:
        self.site = site
        self._clock = clock
        self._lock = threading.Lock()
        # Since when each is waited for, the longest first.
        self._waited_for: dict[socket.socket, float] = {}
        self._making = threading.BoundedSemaphore(MOST_MADE)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def make(self, client: socket.socket, make: Callable[[], Answer]) -> Answer:
        """An answer for `client`, which is waited for again when it is there."""
        with self._lock:
            self._waited_for.pop(client, None)
        if not self._making.acquire(blocking=False):
            answer = BUSY
        else:
            try:
                answer = make()
            finally:
                self._making.release()
        self._wait_for(client)
        return answer

    def process_request(self, request: Any, client_address: Any) -> None:
        """A client has come."""
        self._wait_for(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """A client is done with."""
        with self._lock:
            self._waited_for.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called every LOOK_S and with every client."""
        last = self._clock() - PATIENCE_S
        with self._lock:
            for client in [client for client, since in self._waited_for.items() if since < last]:
                self._send_away(client)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""

    def _wait_for(self, client: socket.socket) -> None:
        with self._lock:
            while len(self._waited_for) >= MOST_WAITED_FOR:
                self._send_away(next(iter(self._waited_for)))
            self._waited_for[client] = self._clock()

    def _send_away(self, client: socket.socket) -> None:
        """Its thread finds the connection at its end, and ends. The lock is held."""
        del self._waited_for[client]
        try:
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It went by itself.
            return
