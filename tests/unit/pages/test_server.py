"""The server of pages, asked over HTTP by clients of all kinds."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Final

import pytest

from pages.exposition import gauge
from pages.server import MOST_BYTES, MOST_MADE, MOST_WAITED_FOR, PATIENCE_S, Server
from pages.site import HTML, TEXT, Answer, Site

LIMIT_S: Final = 10.0


class Desk:
    """Pages of a service that does what it is asked to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.said: list[tuple[Mapping[str, str], Mapping[str, str]]] = []
        self.started = threading.Semaphore(0)
        self.go_on = threading.Event()
        pages = {"/well": lambda query: Answer(200, TEXT, query.get("word", "well")), "/slow": self.slow}
        self.site = Site("desk", lambda: [gauge("reveal_desk_open", "Whether it is", 1)], pages, {"/said": self.take})

    def slow(self, _: Mapping[str, str]) -> Answer:
        self.started.release()
        assert self.go_on.wait(LIMIT_S)
        return Answer(200, TEXT, "at last")

    def take(self, query: Mapping[str, str], form: Mapping[str, str]) -> Answer:
        self.said.append((query, form))
        return Answer(200, HTML, "<p>stored")


@contextmanager
def served(desk: Desk, host: str = "127.0.0.1") -> Iterator[int]:
    server = Server(desk.site, host, 0, lambda: desk.now)
    try:
        yield server.port
    finally:
        desk.go_on.set()
        server.close()


def ask(port: int, path: str, form: str | None = None) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)) as connection:
        connection.request("GET" if form is None else "POST", path, form)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def silent(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)


def test_pages_and_forms() -> None:
    desk = Desk()
    with served(desk) as port:
        assert ask(port, "/well?word=fine") == (200, "fine")
        assert "reveal_desk_open 1.0\n" in ask(port, "/metrics")[1]
        assert ask(port, "/said?of=what", "note=a+word") == (200, "<p>stored")
        assert ask(port, "/said")[0] == 404
        assert ask(port, "/well", "note=a")[0] == 404
    assert desk.said == [({"of": "what"}, {"note": "a word"})]


def test_every_answer_keeps_to_itself() -> None:
    with served(Desk()) as port, closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)) as connection:
        connection.request("GET", "/well")
        answer = connection.getresponse()
        answer.read()
    assert answer.getheader("Server") == "reveal-desk"
    assert answer.getheader("Cache-Control") == "no-store"
    assert (answer.getheader("Content-Security-Policy") or "").startswith("default-src 'none'")


@pytest.mark.parametrize("length", [str(MOST_BYTES + 1), "-1", "", "x", "9" * 5000])
def test_a_form_is_bounded(length: str) -> None:
    desk = Desk()
    with served(desk) as port, silent(port) as client:
        client.sendall(f"POST /said HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.0 413 ")
    assert desk.said == []


def test_half_a_form_is_none() -> None:
    desk = Desk()
    with served(desk) as port, silent(port) as client:
        client.sendall(b"POST /said HTTP/1.1\r\nContent-Length: 20\r\n\r\nnote=it+is+n")
        client.shutdown(socket.SHUT_WR)
        assert gone(client)
        assert ask(port, "/well")[0] == 200
    assert desk.said == []


def test_clients_that_say_nothing_do_not_keep_others_out() -> None:
    with served(Desk()) as port, ExitStack() as stack:
        clients = [stack.enter_context(silent(port)) for _ in range(MOST_WAITED_FOR + 40)]
        assert ask(port, "/well") == (200, "well")
        # The first that came is the first to go.
        assert gone(clients[0])


def test_a_client_has_so_long_and_no_longer_however_it_spreads_its_bytes() -> None:
    desk = Desk()
    with served(desk) as port, silent(port) as client:
        client.sendall(b"GET /well HTTP/1.1\r\n")
        assert ask(port, "/well")[0] == 200
        client.sendall(b"Host: h\r\n")
        desk.now += PATIENCE_S + 0.1
        client.sendall(b"More: 1\r\n")
        assert gone(client)


def test_pages_that_do_not_come_keep_no_more_than_so_many_threads() -> None:
    desk = Desk()
    with served(desk) as port, ExitStack() as stack:
        clients = [stack.enter_context(silent(port)) for _ in range(MOST_MADE)]
        for client in clients:
            client.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
            assert desk.started.acquire(timeout=LIMIT_S)
        assert ask(port, "/well") == (503, "too many pages are being made\n")
        # Who is served is not sent away, however long it takes.
        desk.now += 10 * PATIENCE_S
        desk.go_on.set()
        assert all(b"at last" in answer(client) for client in clients)
        assert ask(port, "/well") == (200, "well")


def gone(client: socket.socket) -> bool:
    """Whether the server has ended the connection, and said nothing."""
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


def answer(client: socket.socket) -> bytes:
    with client.makefile("rb") as file:
        return file.read()


def test_a_port_that_is_taken_is_an_error() -> None:
    desk = Desk()
    with served(desk) as port, pytest.raises(OSError, match="in use"):
        Server(desk.site, "127.0.0.1", port)


def test_it_listens_on_the_newer_protocol_too() -> None:
    try:
        probe = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as error:
        pytest.skip(f"this machine has no ::1: {error}")
    probe.close()
    with (
        served(Desk(), "::1") as port,
        closing(http.client.HTTPConnection("::1", port, timeout=LIMIT_S)) as connection,
    ):
        connection.request("GET", "/well")
        assert connection.getresponse().read() == b"well"
