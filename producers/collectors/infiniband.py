"""/sys/class/infiniband: traffic, errors and state of each port of an InfiniBand or RoCE adapter.

Data counters are in words of four bytes. Counters of the older kind are a few bits wide, do not come round and stand at
their highest value until somebody resets them: at that value they are absent. Drivers ask firmware, which may not
answer, so reading may block.
"""

from __future__ import annotations

import math
import re
from typing import Final

from producers.collector import NAN, Collector, Layout, Reading, number, plain
from producers.optional import label, optional
from producers.reading import Texts

DEVICE: Final = "sys/class/infiniband/*"
PATH: Final = re.compile(r"/infiniband/([^/]+)/(?:ports/([^/]+)/)?(?:(counters|counters_ext|hw_counters)/)?([^/]+)$")
DATA: Final = {
    "port_rcv_data": "ib.rx_data",
    "port_xmit_data": "ib.tx_data",
    "port_rcv_packets": "ib.rx_packets",
    "port_xmit_packets": "ib.tx_packets",
}
# Name: metric, and highest value in a port counters attribute of the InfiniBand architecture (release 1.3, 16.1.3.5).
ERRORS: Final = {
    "excessive_buffer_overrun_errors": ("ib.buffer_overrun", 0xF),
    "link_downed": ("ib.link_downed", 0xFF),
    "link_error_recovery": ("ib.link_error_recovery", 0xFF),
    "local_link_integrity_errors": ("ib.local_link_integrity", 0xF),
    "port_rcv_errors": ("ib.rx_errors", 0xFFFF),
    "port_rcv_remote_physical_errors": ("ib.remote_physical", 0xFFFF),
    "port_xmit_discards": ("ib.tx_discards", 0xFFFF),
    "port_xmit_wait": ("ib.tx_wait", 0xFFFFFFFF),
    "symbol_error": ("ib.symbol_error", 0xFFFF),
}
HARDWARE: Final = {
    "local_ack_timeout_err": "ib.hw.ack_timeout",
    "roce_adp_retrans": "ib.hw.adp_retrans",
    "rp_cnp_handled": "ib.hw.cnp_handled",
    "np_cnp_sent": "ib.hw.cnp_sent",
    "duplicate_request": "ib.hw.duplicate_request",
    "np_ecn_marked_roce_packets": "ib.hw.ecn_marked",
    "out_of_buffer": "ib.hw.out_of_buffer",
    "out_of_sequence": "ib.hw.out_of_sequence",
    "packet_seq_err": "ib.hw.packet_seq_err",
    "rnr_nak_retry_err": "ib.hw.rnr_nak",
    "rx_write_requests": "ib.hw.rx_write_requests",
}
FAILED: Final = "ib.hw.cqe_errors"
FAILED_TERMS: Final = ("req_cqe_error", "resp_cqe_error")
STATES: Final = {"state": "ib.state", "phys_state": "ib.phys_state", "rate": "ib.rate"}
STUCK: Final = {
    **dict.fromkeys(DATA.values(), 0xFFFFFFFF),
    **dict(ERRORS.values()),
}


class Ports:
    """Parser of any of these files; those that it does not know are left alone."""

    def __init__(self) -> None:
        self._paths: tuple[str, ...] = ()
        self._terms: dict[tuple[str, str], tuple[int, ...]] = {}
        self._highest: list[float] = []
        self._stuck: tuple[bool, ...] = ()
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Counters, and numbers of states."""
        if tuple(texts) != self._paths:
            self._learn(tuple(texts))
        numbers = [leading(text) for text in texts.values()]
        values = [sum(numbers[index] for index in terms) for terms in self._terms.values()]
        stuck = tuple(value == highest for value, highest in zip(values, self._highest, strict=True))
        if stuck != self._stuck:
            self._stuck = stuck
            full = [channel for channel, stands in zip(self._terms, stuck, strict=True) if stands]
            notes = tuple(f"{metric} of {port} stands at its highest value; reset it" for metric, port in full)
            self._layout = Layout(tuple(self._terms), notes=notes)
        return self._layout, [NAN if stands else value for value, stands in zip(values, stuck, strict=True)]

    def _learn(self, paths: tuple[str, ...]) -> None:
        found: dict[tuple[str, str], int] = {}
        for index, path in enumerate(paths):
            if match := PATH.search(path):
                device, port, directory, name = match.groups()
                if directory == "counters_ext":
                    name = name.removesuffix("_64")
                metric = _metric(directory, name)
                instance = label(f"{device}/{port}" if port else device)
                # The wide counters come after the narrow ones, and take their place.
                if metric:
                    found[metric, instance] = index
        terms: dict[tuple[str, str], tuple[int, ...]] = {
            channel: (index,) for channel, index in found.items() if channel[0] not in FAILED_TERMS
        }
        for metric, instance in found:
            indices = tuple(found[name, instance] for name in FAILED_TERMS if (name, instance) in found)
            if metric in FAILED_TERMS and len(indices) == len(FAILED_TERMS):
                terms[FAILED, instance] = indices
        # Some drivers have such counters for the device as a whole; where its ports have them, too, those are meant.
        ported = {(metric, instance.partition("/")[0]) for metric, instance in terms if "/" in instance}
        self._terms = {channel: indices for channel, indices in terms.items() if channel not in ported}
        self._highest = [STUCK.get(metric, NAN) for metric, _ in self._terms]
        self._stuck = (False,) * len(self._terms)
        self._layout = Layout(tuple(self._terms))
        self._paths = paths


def _metric(directory: str | None, name: str) -> str:
    """Metric of a file, or the name itself of one that is a term; "" for what is of no use."""
    if directory == "hw_counters":
        return HARDWARE.get(name) or (name if name in FAILED_TERMS else "")
    if directory:
        return DATA.get(name) or ERRORS.get(name, ("", 0))[0]
    return STATES.get(name, "")


def leading(text: bytes) -> float:
    """The number that `text` begins with, such as 4 of "4: ACTIVE", 2.5 of "2.5 Gb/sec"; NaN for "N/A (no PMA)"."""
    if not math.isnan(value := number(text)):
        return value
    word = text.split(None, 1)[0].rstrip(b":") if text.strip() else b""
    try:
        rate = float(word) if word[:1].isdigit() and b"_" not in word else NAN
    except ValueError:
        return NAN
    return rate if b":" in text or b"Gb" in text else NAN


INFINIBAND: Final = Collector(
    "infiniband",
    tuple(
        f"{DEVICE}/ports/[0-9]*/{name}"
        for name in (*(f"counters/{name}" for name in DATA), *(f"counters_ext/{name}_64" for name in DATA))
    ),
    plain(Ports),
    tuple(DATA.values()),
    may_block=True,
    source=optional,
    scales={"ib.rx_data": 4.0, "ib.tx_data": 4.0},
)
INFINIBAND_ERRORS: Final = Collector(
    "infiniband_errors",
    (
        *(f"{DEVICE}/ports/[0-9]*/{name}" for name in STATES),
        *(f"{DEVICE}/ports/[0-9]*/counters/{name}" for name in ERRORS),
        *(f"{DEVICE}/ports/[0-9]*/hw_counters/{name}" for name in (*HARDWARE, *FAILED_TERMS)),
        *(f"{DEVICE}/hw_counters/{name}" for name in (*HARDWARE, *FAILED_TERMS)),
    ),
    plain(Ports),
    (*STATES.values(), *(metric for metric, _ in ERRORS.values()), *HARDWARE.values(), FAILED),
    every_ms=1000,
    may_block=True,
    source=optional,
)
