"""/proc/net/snmp and /proc/net/netstat: IP, TCP and UDP counters, a row of names above each row of numbers."""

from __future__ import annotations

from typing import Final

from producers.collector import Collector, Layout, Reading, plain
from producers.collectors.fields import Fields, Found, host_metrics
from producers.reading import Texts

SNMP: Final = {
    "ip.in_discards": "Ip.InDiscards",
    "tcp.attempt_fails": "Tcp.AttemptFails",
    "tcp.curr_estab": "Tcp.CurrEstab",
    "tcp.estab_resets": "Tcp.EstabResets",
    "tcp.in_errs": "Tcp.InErrs",
    "tcp.in_segs": "Tcp.InSegs",
    "tcp.out_rsts": "Tcp.OutRsts",
    "tcp.out_segs": "Tcp.OutSegs",
    "tcp.retrans_segs": "Tcp.RetransSegs",
    "udp.in_datagrams": "Udp.InDatagrams",
    "udp.in_errors": "Udp.InErrors",
    "udp.out_datagrams": "Udp.OutDatagrams",
    "udp.rcvbuf_errors": "Udp.RcvbufErrors",
}
NETSTAT: Final = {
    "ip.ecn_ce": "IpExt.InCEPkts",
    "ip.in_octets": "IpExt.InOctets",
    "ip.out_octets": "IpExt.OutOctets",
    "tcp.abort_on_timeout": "TcpExt.TCPAbortOnTimeout",
    "tcp.backlog_drop": "TcpExt.TCPBacklogDrop",
    "tcp.dsack_recv": "TcpExt.TCPDSACKRecv",
    "tcp.fast_retrans": "TcpExt.TCPFastRetrans",
    "tcp.listen_overflows": "TcpExt.ListenOverflows",
    "tcp.lost_retransmit": "TcpExt.TCPLostRetransmit",
    "tcp.memory_pressures": "TcpExt.TCPMemoryPressures",
    "tcp.ofo_queue": "TcpExt.TCPOFOQueue",
    "tcp.rcvq_drop": "TcpExt.TCPRcvQDrop",
    "tcp.slow_start_retrans": "TcpExt.TCPSlowStartRetrans",
    "tcp.syn_retrans": "TcpExt.TCPSynRetrans",
    "tcp.timeouts": "TcpExt.TCPTimeouts",
}


def find(text: bytes, found: Found) -> list[str]:
    """Walks pairs of rows; a protocol whose rows do not fit together is left out and named as a flaw."""
    flaws: list[str] = []
    names: list[bytes] = []
    start = position = 0
    for line in text.splitlines():
        tokens = line.split()
        if not tokens:
            continue
        if not names:
            names, start = tokens, position
        else:
            protocol = names[0].rstrip(b":").decode("ascii", "replace")
            if tokens[0] != names[0]:
                flaws.append(f"{protocol}: no row of values")
                names, start = tokens, position
                position += len(tokens)
                continue
            if len(tokens) != len(names):
                flaws.append(f"{protocol}: {len(tokens) - 1} values for {len(names) - 1} names")
            else:
                for index, name in enumerate(names[1:], 1):
                    guards = (start, start + index, position)
                    found(f"{protocol}.{name.decode('ascii', 'replace')}", position + index, guards)
            names = []
        position += len(tokens)
    if names:
        flaws.append(f"{names[0].rstrip(b':').decode('ascii', 'replace')}: no row of values")
    return flaws


class Snmp:
    """Parser of both files."""

    def __init__(self) -> None:
        self._fields = {
            "proc/net/snmp": Fields(find, host_metrics(SNMP)),
            "proc/net/netstat": Fields(find, host_metrics(NETSTAT)),
        }
        self._layouts: list[Layout] = []
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Counters, and the gauge of open connections."""
        layouts: list[Layout] = []
        values: list[float] = []
        for path, text in texts.items():
            layout, cells = self._fields[path](text)
            layouts.append(layout)
            values += cells
        if layouts != self._layouts:
            self._layouts = layouts
            self._layout = Layout(
                tuple(channel for layout in layouts for channel in layout.channels),
                tuple(flaw for layout in layouts for flaw in layout.flaws),
            )
        return self._layout, values


SNMP_NETSTAT = Collector("snmp", ("proc/net/snmp", "proc/net/netstat"), plain(Snmp), (*SNMP, *NETSTAT))
