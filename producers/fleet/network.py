"""Metrics of subsystem network: Ethernet, TCP, receive path of each core, InfiniBand and RoCE, PCIe devices."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.fleet.activity import Flow
from producers.fleet.cpu import interrupt_share
from producers.fleet.group import Group
from producers.fleet.knobs import Turned
from producers.fleet.sheet import Sheet

Floats = NDArray[np.floating[Any]]
BUDGET: Final = 0.08
"""Share of a core in soft interrupts of the network above which its receive loop runs out of its budget at times."""
HEADERS: Final = 60.0
MTU: Final = 4096.0
PCIE_GT: Final = {3: 8.0, 4: 16.0, 5: 32.0}
QUIET: Final = (
    *("softnet.dropped", "conntrack.drop", "conntrack.early_drop", "conntrack.insert_failed"),
    *(f"net.{name}" for name in ("rx_errors", "tx_errors", "tx_dropped", "rx_fifo", "tx_carrier", "carrier_changes")),
    *("net.link_errors", "net.rx_crc", "net.tx_aborted", "ip.in_discards", "ip6.in_discards", "ip6.out_discards"),
    *(
        f"tcp.{name}"
        for name in ("abort_on_timeout", "backlog_drop", "in_errs", "listen_overflows", "memory_pressures")
    ),
    *("tcp.rcvq_drop", "udp.in_errors", "udp.rcvbuf_errors", "udp6.in_errors", "udp6.rcvbuf_errors"),
    *("ib.buffer_overrun", "ib.link_downed", "ib.remote_physical", "ib.hw.cqe_errors", "pcie.aer_fatal"),
    *("pcie.aer_nonfatal", "pcie.aer_correctable", "pcie.width_lost"),
)


def fill_network(group: Group, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    """Set all metrics of the subsystem."""
    sheet.zero(*QUIET)
    _interfaces(group, flow, knobs, sheet)
    _tcp(group, flow, sheet)
    _receive_path(group, flow, knobs, sheet)
    if group.profile.ports:
        _ports(group, flow, knobs, sheet)
    generation = 3 if group.profile.gpu is None else group.profile.gpu.pcie_gen
    sheet["pcie.speed"] = PCIE_GT[generation]
    sheet["pcie.width"] = 16.0
    sheet.finish()
    for way, data, packets, segments in (
        ("rx", flow.rx_bytes, flow.rx_packets, "tcp.in_segs"),
        ("tx", flow.tx_bytes, flow.tx_packets, "tcp.out_segs"),
    ):
        count = sheet[f"net.{way}_bytes"] * packets / (data + HEADERS * packets)
        sheet[f"net.{way}_packets"] = count
        sheet[segments] = 0.97 * count.sum(axis=2, keepdims=True)
        if f"ib.{way}_data" in sheet:
            sheet[f"ib.{way}_packets"] = sheet[f"ib.{way}_data"] / MTU
    sheet["ip.in_octets"] = 0.986 * sheet["net.rx_bytes"].sum(axis=2, keepdims=True)
    sheet["ip.out_octets"] = 0.986 * sheet["net.tx_bytes"].sum(axis=2, keepdims=True)
    sheet.seal()


def _interfaces(group: Group, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    count = len(group.profile.interfaces)
    # The first carries the data, the others are for management.
    share = np.full(count, 0.002, np.float32)
    share[0] = 1 - 0.002 * (count - 1)
    dropped = np.clip(knobs["rx_drop"], 0, 1)
    sheet["net.rx_bytes"] = (flow.rx_bytes + HEADERS * flow.rx_packets) * share
    sheet["net.tx_bytes"] = (flow.tx_bytes + HEADERS * flow.tx_packets) * share
    sheet["net.rx_missed"] = flow.rx_packets * share * dropped
    sheet["net.rx_dropped"] = flow.rx_packets * share * dropped + 0.02
    sheet["net.operstate"] = 1.0
    sheet["net.speed"] = float(group.profile.mbit)


def _tcp(group: Group, flow: Flow, sheet: Sheet) -> None:
    out, loss = flow.tx_packets, flow.loss
    again = out * loss
    rare = np.clip(loss - 1e-4, 0, 1)
    connections = 24 + (160 if group.profile.gpu is None else 90) * flow.working
    values: dict[str, Floats | float] = {
        "tcp.retrans_segs": again,
        "tcp.fast_retrans": 0.7 * again,
        "tcp.slow_start_retrans": 0.1 * again,
        "tcp.lost_retransmit": 2 * out * rare * loss,
        "tcp.timeouts": 0.02 * again + 40 * rare,
        "tcp.dsack_recv": 0.05 * again,
        "tcp.ofo_queue": 0.3 * flow.rx_packets * loss,
        "tcp.syn_retrans": 0.02 + 2 * rare,
        "tcp.attempt_fails": 0.01,
        "tcp.estab_resets": 0.05,
        "tcp.out_rsts": 0.1,
        "tcp.curr_estab": connections,
        "tcp.in_use": connections + 8,
        "tcp.orphan": 0.0,
        "tcp.time_wait": 6 + 20 * flow.read,
        "tcp.mem_pages": 300 + (flow.rx_bytes + flow.tx_bytes) * 0.002 / 4096,
        "sock.used": connections + 220,
        "ip.ecn_ce": 0.0,
        "ip6.in_receives": 0.8,
        "udp.in_datagrams": 3.0 * flow.live + 0.2,
        "udp.out_datagrams": 3.0 * flow.live + 0.2,
        "conntrack.entries": connections + 60,
        "conntrack.limit": 262_144.0,
        "conntrack.invalid": 0.02,
    }
    for name, value in values.items():
        sheet[name] = value


def _receive_path(group: Group, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    share = interrupt_share(group, knobs, group.profile.cpus)
    packets = flow.rx_packets * share
    sheet["softnet.processed"] = packets + 0.5 * flow.live
    spent = 1.3e-6 * packets + knobs["softirq"]
    sheet["softnet.time_squeeze"] = 2000 * np.maximum(spent - BUDGET, 0)


def _ports(group: Group, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    data, errors, congestion = flow.port_bytes, knobs["port_errors"], np.clip(knobs["congestion"], 0, 1)
    packets = data / MTU
    not_ready = knobs["receiver_not_ready"]
    values: dict[str, Floats | float] = {
        "ib.rx_data": data,
        "ib.tx_data": data,
        "ib.tx_wait": data * 0.002 + 3e7 * congestion * (0.2 + flow.communicate),
        "ib.tx_discards": 0.00002 * congestion * packets,
        "ib.symbol_error": errors,
        "ib.local_link_integrity": 0.1 * errors,
        "ib.rx_errors": 0.3 * errors,
        "ib.link_error_recovery": 0.01 * errors,
        "ib.rate": float(group.profile.port_gbit),
        "ib.state": 4.0,
        "ib.phys_state": 5.0,
        "ib.qp_count": 6 + 90 * flow.working * np.clip(knobs["queue_pairs"], 0, 1) * np.ones_like(data),
        "ib.hw.rx_write_requests": data / 131_072,
        "ib.hw.out_of_buffer": not_ready,
        "ib.hw.rnr_nak": 0.5 * not_ready,
        "ib.hw.out_of_sequence": 0.2 * errors + 0.00005 * congestion * packets,
        "ib.hw.packet_seq_err": 0.1 * errors,
        "ib.hw.duplicate_request": 0.1 * errors + 0.02 * not_ready,
        "ib.hw.ack_timeout": 0.004 * errors,
        "ib.hw.adp_retrans": 0.00003 * congestion * packets,
        "ib.hw.cnp_handled": 0.004 * congestion * packets,
        "ib.hw.cnp_sent": 0.003 * congestion * packets,
        "ib.hw.ecn_marked": 0.006 * congestion * packets,
    }
    for name, value in values.items():
        sheet[name] = value
