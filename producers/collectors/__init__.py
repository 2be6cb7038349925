"""Collectors: one file a source, all of them in the table COLLECTORS.

Belongs here: which files a source has, a parser from bytes to values, the names of its metrics. May not: reading,
clocks, rates, errors, logging; those are the frame's.

To add a metric: its field in `schemas/avro/<subsystem>.avsc` and a row in the names of its collector. To add a source:
a file with a parser and a `Collector`, and its line in COLLECTORS.
"""

from __future__ import annotations

from typing import Final

from producers.collector import Collector
from producers.collectors.agent import AGENT
from producers.collectors.buddyinfo import BUDDYINFO
from producers.collectors.conntrack import CONNTRACK
from producers.collectors.cpufreq import CPUFREQ
from producers.collectors.cpuidle import CPUIDLE
from producers.collectors.diskstats import DISKSTATS
from producers.collectors.edac import EDAC
from producers.collectors.filesystems import FILESYSTEMS, OPEN_FILES
from producers.collectors.gpu import GPU
from producers.collectors.hwmon import HWMON
from producers.collectors.infiniband import INFINIBAND, INFINIBAND_ERRORS
from producers.collectors.interrupts import INTERRUPTS
from producers.collectors.loadavg import LOADAVG
from producers.collectors.mdstat import MDSTAT
from producers.collectors.meminfo import MEMINFO
from producers.collectors.mounts import MOUNTS
from producers.collectors.netclass import NETCLASS, NETSPEED
from producers.collectors.netdev import NETDEV
from producers.collectors.numa import NUMA
from producers.collectors.nvme import NVME, SMART
from producers.collectors.nvmetemp import NVME_TEMP
from producers.collectors.online import ONLINE
from producers.collectors.pcie import PCIE, PCIE_ERRORS
from producers.collectors.perf import PERF
from producers.collectors.powercap import POWERCAP
from producers.collectors.pressure import PRESSURE
from producers.collectors.rdma import RDMA
from producers.collectors.schedstat import SCHEDSTAT
from producers.collectors.slabs import SLABS
from producers.collectors.snmp import SNMP_NETSTAT
from producers.collectors.snmp6 import SNMP6
from producers.collectors.sockstat import SOCKSTAT
from producers.collectors.softirqs import SOFTIRQS
from producers.collectors.softnet import SOFTNET
from producers.collectors.stat import STAT
from producers.collectors.thermal import COOLING, THERMAL
from producers.collectors.throttle import THROTTLE
from producers.collectors.vmstat import VMSTAT
from producers.collectors.zones import ZONES

COLLECTORS: Final[tuple[Collector, ...]] = (
    STAT,
    LOADAVG,
    PRESSURE,
    SCHEDSTAT,
    AGENT,
    INTERRUPTS,
    SOFTIRQS,
    CPUFREQ,
    CPUIDLE,
    ONLINE,
    THROTTLE,
    POWERCAP,
    HWMON,
    THERMAL,
    COOLING,
    PERF,
    GPU,
    MEMINFO,
    VMSTAT,
    NUMA,
    BUDDYINFO,
    ZONES,
    SLABS,
    EDAC,
    NETDEV,
    NETCLASS,
    NETSPEED,
    SNMP_NETSTAT,
    SNMP6,
    SOFTNET,
    SOCKSTAT,
    CONNTRACK,
    INFINIBAND,
    INFINIBAND_ERRORS,
    RDMA,
    PCIE,
    PCIE_ERRORS,
    DISKSTATS,
    NVME,
    SMART,
    FILESYSTEMS,
    OPEN_FILES,
    MOUNTS,
    MDSTAT,
    NVME_TEMP,
)
