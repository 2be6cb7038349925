"""/proc/net/snmp6: counters of IP version 6, a name and a number a line."""

from __future__ import annotations

from typing import Final

from producers.collector import Collector, Reading, only, plain
from producers.collectors.fields import Fields, find_lines, host_metrics
from producers.reading import Texts

NAMES: Final = {
    "ip6.in_discards": "Ip6InDiscards",
    "ip6.in_receives": "Ip6InReceives",
    "ip6.out_discards": "Ip6OutDiscards",
    "udp6.in_errors": "Udp6InErrors",
    "udp6.rcvbuf_errors": "Udp6RcvbufErrors",
}


class Snmp6:
    """Parser of /proc/net/snmp6; kernels before 2.6.37 have no counter of full buffers."""

    def __init__(self) -> None:
        self._fields = Fields(find_lines, host_metrics(NAMES))

    def __call__(self, texts: Texts) -> Reading:
        """Datagrams."""
        return self._fields(only(texts))


SNMP6: Final = Collector("snmp6", ("proc/net/snmp6",), plain(Snmp6), tuple(NAMES), every_ms=1000)
