"""/proc/net/dev: traffic and errors of each network interface."""

from __future__ import annotations

from typing import Final

from producers.collector import Collector, Layout, ParseError, Reading, number, only
from producers.reading import Texts, Wanted, everything

RECEIVE: Final = {
    "bytes": "net.rx_bytes",
    "packets": "net.rx_packets",
    "errs": "net.rx_errors",
    "drop": "net.rx_dropped",
    "fifo": "net.rx_fifo",
}
TRANSMIT: Final = {
    "bytes": "net.tx_bytes",
    "packets": "net.tx_packets",
    "errs": "net.tx_errors",
    "drop": "net.tx_dropped",
    "carrier": "net.tx_carrier",
}


class Netdev:
    """Parser of /proc/net/dev. Columns by the names in its header; interface names may hold colons."""

    def __init__(self, wanted: Wanted = everything) -> None:
        self._wanted = wanted
        self._verdicts: dict[bytes, bool] = {}
        self._header = b""
        self._columns: list[int] = []
        self._metrics: list[str] = []
        self._width = 0
        self._names: list[bytes] = []
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Bytes, packets and errors, interface by interface."""
        lines = only(texts).splitlines()
        if len(lines) < 2 or lines[1] != self._header:
            self._learn(lines)
        names: list[bytes] = []
        values: list[float] = []
        for line in lines[2:]:
            name, _, tail = line.rpartition(b":")
            wanted = self._verdicts.get(name)
            if not (self._decide(name) if wanted is None else wanted):
                continue
            cells = tail.split()
            if len(cells) >= self._width:
                names.append(name)
                values += [number(cells[column]) for column in self._columns]
        if names != self._names:
            self._names = names
            labels = [name.strip().decode("utf-8", "replace") for name in names]
            self._layout = Layout(tuple((metric, label) for label in labels for metric in self._metrics))
        return self._layout, values

    def _decide(self, name: bytes) -> bool:
        """Whether to read an interface, which is remembered by its name; of names there may be many in time."""
        if len(self._verdicts) > 10_000:
            self._verdicts.clear()
        label = name.strip().decode("utf-8", "replace")
        return self._verdicts.setdefault(name, bool(label) and self._wanted("interface", label))

    def _learn(self, lines: list[bytes]) -> None:
        parts = lines[1].decode("ascii", "replace").split("|") if len(lines) > 1 else []
        if len(parts) != 3:
            raise ParseError("no header with receive and transmit columns")
        receive, transmit = parts[1].split(), parts[2].split()
        found = {metric: receive.index(name) for name, metric in RECEIVE.items() if name in receive}
        found |= {metric: len(receive) + transmit.index(name) for name, metric in TRANSMIT.items() if name in transmit}
        self._metrics, self._columns = list(found), list(found.values())
        self._width = max(self._columns, default=0) + 1
        self._header = lines[1]
        self._names = []


NETDEV = Collector("netdev", ("proc/net/dev",), Netdev, (*RECEIVE.values(), *TRANSMIT.values()))
