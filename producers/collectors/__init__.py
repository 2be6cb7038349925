"""Collectors: one file a source, all of them in the table COLLECTORS.

Belongs here: which files a source has, a parser from bytes to values, the names of its metrics. May not: reading,
clocks, rates, errors, logging; those are the frame's.

To add a metric: its field in `schemas/avro/<subsystem>.avsc` and a row in the names of its collector. To add a source:
a file with a parser and a `Collector`, and its line in COLLECTORS.
"""

from __future__ import annotations

from typing import Final

from producers.collector import Collector
from producers.collectors.cpufreq import CPUFREQ
from producers.collectors.diskstats import DISKSTATS
from producers.collectors.interrupts import INTERRUPTS
from producers.collectors.loadavg import LOADAVG
from producers.collectors.meminfo import MEMINFO
from producers.collectors.netdev import NETDEV
from producers.collectors.numa import NUMA
from producers.collectors.pressure import PRESSURE
from producers.collectors.schedstat import SCHEDSTAT
from producers.collectors.snmp import SNMP_NETSTAT
from producers.collectors.sockstat import SOCKSTAT
from producers.collectors.softirqs import SOFTIRQS
from producers.collectors.softnet import SOFTNET
from producers.collectors.stat import STAT
from producers.collectors.vmstat import VMSTAT

COLLECTORS: Final[tuple[Collector, ...]] = (
    STAT,
    LOADAVG,
    PRESSURE,
    SCHEDSTAT,
    INTERRUPTS,
    SOFTIRQS,
    CPUFREQ,
    MEMINFO,
    VMSTAT,
    NUMA,
    NETDEV,
    SNMP_NETSTAT,
    SOFTNET,
    SOCKSTAT,
    DISKSTATS,
)
