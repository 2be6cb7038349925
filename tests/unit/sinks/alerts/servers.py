"""Receivers for the contract suite: an HTTP server and an SMTP server that work, fail, hang or ask for patience."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Behaviour:
    """What the next requests get; `hang` is set to let hanging ones go."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    hangs: bool = False
    hang: threading.Event = field(default_factory=threading.Event)


class HttpReceiver:
    """An HTTP server on a free loopback port."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.behaviour = behaviour = Behaviour()
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                requests.append(Request(self.path, dict(self.headers.items()), body))
                if behaviour.hangs:
                    behaviour.hang.wait(30)
                    return
                self.send_response(behaviour.status)
                for name, value in behaviour.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(behaviour.body)))
                self.end_headers()
                self.wfile.write(behaviour.body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.behaviour.hang.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class SmtpReceiver:
    """A mail server on a free loopback port, as far as RFC 5321 goes without extensions.

    replies: by command (connect, MAIL, RCPT, DATA, or end for the end of the data), what it answers instead.
    """

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.replies: dict[str, str] = {}
        self.hangs = False
        self.hang = threading.Event()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                if outer.hangs:
                    outer.hang.wait(30)
                    return
                self.say("connect", "220 test")
                while line := self.rfile.readline():
                    command = line.split(maxsplit=1)[0].upper().decode() if line.strip() else ""
                    if command == "DATA":
                        if not self.say("DATA", "354 go on").startswith("354"):
                            continue
                        lines = []
                        while (text := self.rfile.readline()) not in (b".\r\n", b""):
                            lines.append(text)
                        if self.say("end", "250 kept").startswith("250"):
                            outer.mails.append(b"".join(lines).decode())
                    elif command == "QUIT":
                        self.say("QUIT", "221 bye")
                        return
                    else:
                        self.say(command, "250 fine")

            def say(self, what: str, usual: str) -> str:
                reply = outer.replies.get(what, usual)
                self.wfile.write(reply.encode() + b"\r\n")
                return reply

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self.hang.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
