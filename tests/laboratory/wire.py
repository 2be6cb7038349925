"""The wire between this machine and the workload's peer: `python -m tests.laboratory.wire DIRECTORY netem|relay`.

    this machine            namespace of the wire            namespace of the peer
    revlab0 ─────────────── revlab1 ═ bridge ═ revlab2 ─────────────── eth0

All hangs on this process and the peer's, which dies with it: when they end, the kernel takes the namespaces, and with
them the interfaces, away. Impairments are ordered at the socket DIRECTORY/wire: one line, `loss PERCENT`, `delay MS`,
`flood` or `vanish`; they last as long as that connection. Loss and delay are netem's in the middle of the wire, or,
where the kernel has no netem, those of a relay that takes the bridge's place meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import heapq
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from deploy.process import start_bound
from tests.laboratory.programs import finding

HERE: Final = "198.18.77.1"
PEER: Final = "198.18.77.2"
SECOND_PEER: Final = "198.18.77.3"
INTERFACE: Final = "revlab0"
SOCKET: Final = "wire"
READY_S: Final = 15.0
CLONE_NEWNET: Final = 0x40000000
SOL_PACKET: Final = 263
PACKET_IGNORE_OUTGOING: Final = 23
PACKET_VNET_HDR: Final = 15
ETH_P_ALL: Final = 3
FRAME: Final = 10 + 65_600
BUFFER: Final = 4 << 20


class WireError(RuntimeError):
    """The wire cannot be made; the text says what the kernel refused."""


def new_namespace() -> None:
    """Moves the calling thread into a network namespace of its own. Raises WireError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise WireError(f"no network namespace: {os.strerror(ctypes.get_errno())}")


def ip(*arguments: str, of: int | None = None, program: str = "ip") -> None:
    """`ip ARGUMENTS`, in the network namespace of process `of` if one is named. Raises WireError."""
    where = () if of is None else ("nsenter", "--target", str(of), "--net")
    done = subprocess.run((*where, program, *arguments), capture_output=True, text=True, check=False, timeout=10)
    if done.returncode != 0:
        raise WireError(f"{program} {' '.join(arguments)}: {done.stderr.strip()}")


def knows_netem() -> bool:
    """Whether the kernel has netem: tried in a namespace that ends at once."""
    trial = ("unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", "1%")
    return subprocess.run(trial, capture_output=True, check=False, timeout=10).returncode == 0


class Impairment:
    """What becomes of frames: lost with a chance of `loss`, or due `delay_s` after they came, in their order."""

    def __init__(self, loss: float, delay_s: float, seed: int = 0) -> None:
        self._loss, self._delay_s = loss, delay_s
        self._random = random.Random(seed)
        self._waiting: list[tuple[float, int, bytes]] = []
        self._count = 0

    def take(self, frame: bytes, now: float) -> None:
        """A frame has come at `now`, s."""
        if self._random.random() >= self._loss:
            self._count += 1
            heapq.heappush(self._waiting, (now + self._delay_s, self._count, frame))

    def due(self, now: float) -> Iterator[bytes]:
        """Frames whose time has come."""
        while self._waiting and self._waiting[0][0] <= now:
            yield heapq.heappop(self._waiting)[2]

    def next(self) -> float | None:
        """When the next frame is due; None when none waits."""
        return self._waiting[0][0] if self._waiting else None


class Relay:
    """Carries frames between two interfaces of this namespace in the bridge's place."""

    def __init__(self, loss: float, delay_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        one, other = (_packets(name) for name in ("revlab1", "revlab2"))
        self._sockets = (one, other)
        for seed, (source, target) in enumerate(((one, other), (other, one))):
            way = Impairment(loss, delay_s, seed)
            self._loop.add_reader(source, self._carry, source, target, way)

    def close(self) -> None:
        """Carry nothing any more; what waits is lost."""
        for timer in self._timers.values():
            timer.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()

    def _carry(self, source: socket.socket, target: socket.socket, way: Impairment) -> None:
        now = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            while True:
                way.take(source.recv(FRAME), now)
        self._deliver(target, way)

    def _deliver(self, target: socket.socket, way: Impairment) -> None:
        for frame in way.due(time.monotonic()):
            with contextlib.suppress(OSError):  # as on a wire: what finds no room is lost
                target.send(frame)
        due = way.next()
        if timer := self._timers.pop(id(way), None):
            timer.cancel()
        if due is not None:
            wait_s = max(0.0, due - time.monotonic())
            self._timers[id(way)] = self._loop.call_later(wait_s, self._deliver, target, way)


def _packets(interface: str) -> socket.socket:
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    packets.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    # Checksums that the sender leaves to its device stay so.
    packets.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    packets.bind((interface, ETH_P_ALL))
    packets.setblocking(False)
    return packets


class Wire:
    """The wire, laid by this process from the namespace of `here`, a process id."""

    def __init__(self, here: int, netem: bool) -> None:
        self._netem = netem
        new_namespace()
        self._peer = start_bound(_module("tests.laboratory.peer", "serve"), finding(os.environ), None)
        self._await_peer()
        self._lay(here, self._peer.pid)

    def impair(self, order: str) -> ExitStack:
        """Carry out an order; what is returned undoes it. Raises ValueError for one that is none."""
        undo = ExitStack()
        try:
            match order.split():
                case ["loss", percent]:
                    undo.enter_context(self._middle(float(percent) / 100, 0.0))
                case ["delay", milliseconds]:
                    undo.enter_context(self._middle(0.0, float(milliseconds) / 1000))
                case ["flood"]:
                    undo.callback(self._flood())
                case ["vanish"]:
                    ip("addr", "del", f"{SECOND_PEER}/24", "dev", "eth0", of=self._peer.pid)
                    undo.callback(self._second_peer)
                case _:
                    raise ValueError(f"the wire knows no {order!r}")
        except BaseException:
            undo.close()
            raise
        return undo

    @contextmanager
    def _middle(self, loss: float, delay_s: float) -> Iterator[None]:
        ends = ("revlab1", "revlab2")
        with ExitStack() as undo:
            for end in ends:
                if self._netem:
                    ip("qdisc", "add", "dev", end, "root", "netem", "limit", "20000", "loss", f"{loss:%}", "delay",
                       f"{delay_s * 1000:g}ms", program="tc")  # fmt: skip
                    undo.callback(ip, "qdisc", "del", "dev", end, "root", program="tc")
                else:
                    ip("link", "set", end, "nomaster")
                    undo.callback(ip, "link", "set", end, "master", "br0")
            if not self._netem:
                undo.callback(Relay(loss, delay_s).close)
            yield

    def _flood(self) -> Callable[[], None]:
        flood = start_bound(_module("tests.laboratory.peer", "flood", of=self._peer.pid), finding(os.environ), None)

        def end() -> None:
            flood.kill()
            flood.wait()

        return end

    def _await_peer(self) -> None:
        deadline = time.monotonic() + READY_S
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self._peer.pid}/ns/net") == own:
            if time.monotonic() > deadline or self._peer.poll() is not None:
                raise WireError("the peer did not start")
            time.sleep(0.02)

    def _lay(self, here: int, peer: int) -> None:
        ip("link", "add", "revlab1", "type", "veth", "peer", "name", INTERFACE, "netns", str(here))
        ip("link", "add", "revlab2", "type", "veth", "peer", "name", "eth0", "netns", str(peer))
        ip("link", "add", "br0", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        for name, of in (("br0", None), ("revlab1", None), ("revlab2", None), (INTERFACE, here), ("eth0", peer)):
            # One segment a packet, so that a packet is what it is on a real wire; no talk of IPv6 neighbours.
            ip("link", "set", name, "gso_max_segs", "1", "addrgenmode", "none", of=of)
        for end in ("revlab1", "revlab2"):
            ip("link", "set", end, "master", "br0", "up")
        ip("link", "set", "br0", "up")
        ip("link", "set", "lo", "up", of=peer)
        ip("addr", "add", f"{PEER}/24", "dev", "eth0", of=peer)
        ip("link", "set", "eth0", "up", of=peer)
        self._second_peer()
        ip("addr", "add", f"{HERE}/24", "dev", INTERFACE, of=here)
        ip("link", "set", INTERFACE, "up", of=here)
        # A peer that is gone is one that does not answer, not one that has no address on the link.
        hardware = ip_address_of("eth0", peer)
        ip("neigh", "replace", SECOND_PEER, "lladdr", hardware, "dev", INTERFACE, "nud", "permanent", of=here)

    def _second_peer(self) -> None:
        ip("addr", "replace", f"{SECOND_PEER}/24", "dev", "eth0", of=self._peer.pid)


def ip_address_of(interface: str, of: int) -> str:
    """Hardware address of an interface in the namespace of process `of`. Raises WireError."""
    show = ("nsenter", "--target", str(of), "--net", "ip", "-o", "link", "show", "dev", interface)
    words = subprocess.run(show, capture_output=True, text=True, check=False, timeout=10).stdout.split()
    if "link/ether" not in words:
        raise WireError(f"{interface} has no hardware address")
    return words[words.index("link/ether") + 1]


def _module(name: str, *arguments: str, of: int | None = None) -> tuple[str, ...]:
    where = () if of is None else ("nsenter", "--target", str(of), "--net")
    return (*where, sys.executable, "-P", "-m", name, *arguments)


async def serve(wire: Wire, path: Path) -> None:
    """Take orders at the socket `path` until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def obey(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with wire.impair((await reader.readline()).decode().strip()):
                writer.write(b"done\n")
                await reader.read()  # until whoever ordered it is gone
        except (ConnectionError, ValueError, WireError) as error:
            writer.write(f"{error}\n".encode())
        finally:
            writer.close()

    async with await asyncio.start_unix_server(obey, path):
        await stop.wait()


def main() -> int:
    """Lay the wire and keep it."""
    directory, kind = sys.argv[1:]
    try:
        wire = Wire(os.getppid(), netem=kind == "netem")
    except WireError as error:
        print(error, flush=True)
        return 1
    path = Path(directory) / SOCKET
    path.unlink(missing_ok=True)
    asyncio.run(serve(wire, path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
