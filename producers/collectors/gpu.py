"""GPUs, as the process that reads them tells: `producers.gpu`.

The source gives three texts: what the channels are (HELLO, JSON), the values (float64), and what only the parent knows:
which GPUs are lost, how many are missing, how long ago the last answer came.
"""

from __future__ import annotations

import json
from array import array
from typing import Any, Final

from producers.collector import NAN, Collector, Layout, ParseError, Reading, plain
from producers.gpu.fields import IMPLAUSIBLE, RANGES
from producers.gpu.process import HELLO_KEY, STALE_KEY, STATE_KEY, VALUES_KEY, GpuSource
from producers.reading import Texts

WIDTH: Final = 8
# The driver's byte counters may come round, which 32 bits do within a fraction of a second at full speed.
WRAP: Final = 2.0**32


class Gpus:
    """Parser of what the process tells."""

    def __init__(self) -> None:
        self._hello: bytes | None = None
        self._state: bytes | None = None
        self._layout = Layout(())
        self._width = 0
        self._fixed: list[float] = []

    def __call__(self, texts: Texts) -> Reading:
        """Raw values of all GPUs; NaN for all of them while there is no answer."""
        hello, state = texts.get(HELLO_KEY, b""), texts.get(STATE_KEY, b"")
        if hello != self._hello or state != self._state:
            self._learn(hello, state)
        packed = texts.get(VALUES_KEY, b"")
        if packed and len(packed) != WIDTH * self._width:
            raise ParseError(f"{len(packed)} bytes for {self._width} values")
        stale = array("d", texts.get(STALE_KEY, b""))
        values = array("d", packed).tolist() if packed else [NAN] * self._width
        return self._layout, values + self._fixed + [stale[0] if stale else NAN]

    def _learn(self, hello: bytes, state: bytes) -> None:
        said: dict[str, Any] = json.loads(hello) if hello else {"channels": [], "notes": []}
        known: dict[str, Any] = json.loads(state) if state else {"lost": {}, "missing": None}
        try:
            channels = [(str(metric), str(instance)) for metric, instance in said["channels"]]
            lost = {str(name): float(value) for name, value in known["lost"].items()}
            missing = known["missing"]
            notes = tuple(map(str, said["notes"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ParseError(f"what the process says of itself cannot be understood: {error!r}") from None
        self._width = len(channels)
        self._fixed = [*lost.values(), NAN if missing is None else float(missing)]
        channels += [("gpu.lost", name) for name in lost] + [("gpu.missing", ""), ("gpu.stale", "")]
        if tuple(channels) != self._layout.channels or notes != self._layout.notes:
            self._layout = Layout(tuple(channels), notes=notes)
        self._hello, self._state = hello, state


GPU = Collector(
    "gpu",
    (HELLO_KEY, VALUES_KEY, STATE_KEY, STALE_KEY),
    plain(Gpus),
    (*RANGES, IMPLAUSIBLE, "gpu.lost", "gpu.missing", "gpu.stale"),
    every_ms=100,
    source=GpuSource,
    wraps={"gpu.pcie_tx_bytes": WRAP, "gpu.pcie_rx_bytes": WRAP},
)
