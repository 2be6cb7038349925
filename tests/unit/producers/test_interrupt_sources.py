"""Interrupts of the busiest devices by themselves."""

from __future__ import annotations

import math

import pytest

from producers.collectors.cputable import Row
from producers.collectors.interrupts import INTERRUPTS
from producers.collectors.irqsources import BLOCK, COUNT, source_name
from tests.unit.producers.readings import Values, rates, values

DEVICES = 12


@pytest.mark.parametrize(
    ("label", "words", "name"),
    [
        (b" 36:", b"PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0", "36:virtio1-req.0"),
        (b" 27:", b"IR-PCI-MSI 524288-edge      mlx5_comp0@pci:0000:1b:00.0", "27:mlx5_comp0"),
        (b" 16:", b"IO-APIC  16-fasteoi   i801_smbus, uhci_hcd:usb8", "16:i801_smbus, uhci_hcd:usb8"),
        (b" 10:", b"GICv3  27 Level     arch_timer", "10:arch_timer"),
        (b" 45:", b"5a090000.gpio   3 Edge      button", "45:button"),
        (b"  0:", b"IO-APIC-edge      timer", "0:timer"),
        (b"  4:", b"XT-PIC  serial", "4:serial"),
        # Nobody handles it.
        (b" 99:", b"IR-PCI-MSI 1048576-edge", "99"),
        (b" 98:", b"GICv3  33 Level", "98"),
        (b" 97:", b"", "97"),
    ],
)
def test_names_of_sources(label: bytes, words: bytes, name: str) -> None:
    assert source_name(Row(label, words, (), [])) == name


class Host:
    """A machine with two CPUs and some devices, whose interrupts a test makes come."""

    def __init__(self) -> None:
        self.counts = {f"dev{index}": [100 * (index + 1), 0] for index in range(DEVICES)}
        self.parser = INTERRUPTS.parser()

    def text(self) -> bytes:
        """Its /proc/interrupts."""
        rows = [
            f"{30 + index}: {one:>10} {two:>10}  PCI-MSI {index}-edge      {name}\n"
            for index, (name, (one, two)) in enumerate(self.counts.items())
        ]
        return f"           CPU0       CPU1\n{''.join(rows)}LOC: 1 2 Local timer interrupts\n".encode()

    def read(self, samples: int = 1, **rates: tuple[int, int]) -> Values:
        """The last of so many samples, between which the devices in `rates` make so many interrupts a CPU."""
        found: Values = {}
        for _ in range(samples):
            for name, (one, two) in rates.items():
                self.counts[name][0] += one
                self.counts[name][1] += two
            found = values(self.parser({"proc/interrupts": self.text()}))
        return found


def shown(found: Values) -> set[str]:
    """Devices with a channel."""
    names = {name.partition(":")[2] for metric, name in found if metric == "cpu.irq.source"}
    assert names == {name.partition(":")[2] for metric, name in found if metric == "cpu.irq.source_top_pct"}
    return names


def test_busiest_since_boot_come_first_and_stay() -> None:
    host = Host()
    first = shown(host.read())
    assert first == {f"dev{index}" for index in range(DEVICES - COUNT, DEVICES)}
    # Nothing happens, or as much everywhere: nobody is pushed out.
    assert shown(host.read(3 * BLOCK)) == first
    assert shown(host.read(3 * BLOCK, **{f"dev{index}": (30, 0) for index in range(DEVICES)})) == first


def test_device_that_floods_the_host_gets_a_channel_within_a_second() -> None:
    host = Host()
    host.read(BLOCK + 1)
    found = host.read(BLOCK, dev0=(9000, 1000))
    assert "dev0" in shown(found)
    assert len(shown(found)) == COUNT
    assert found["cpu.irq.source", "30:dev0"] == 100 + BLOCK * 10_000
    assert found["cpu.irq.source_top_pct", "30:dev0"] == pytest.approx(90.0)


def test_share_of_one_cpu_says_nothing_about_few_interrupts() -> None:
    host = Host()
    host.read(1)
    found = host.read(BLOCK, dev11=(1, 0), dev10=(50, 50))
    assert math.isnan(found["cpu.irq.source_top_pct", "41:dev11"])
    assert found["cpu.irq.source_top_pct", "40:dev10"] == 50.0


def test_counters_are_right_across_a_change_of_the_set() -> None:
    host = Host()
    texts = []
    for sample in range(4 * BLOCK):
        host.counts["dev11"][0] += 5
        host.counts["dev0"][1] += 2000 if sample >= BLOCK else 0
        texts.append(host.text())
    published = rates(INTERRUPTS, *texts, seconds=0.1)
    steady = [sample["cpu.irq.source", "41:dev11"] for sample in published]
    assert math.isnan(steady[0])
    assert steady[1:] == pytest.approx([50.0] * (len(texts) - 1))
    flood = [
        found for sample in published if not math.isnan(found := sample.get(("cpu.irq.source", "30:dev0"), math.nan))
    ]
    assert len(flood) > BLOCK
    assert flood == pytest.approx([20_000.0] * len(flood))


def test_device_that_comes_leaves_the_others_as_they_are() -> None:
    host = Host()
    before = shown(host.read(2))
    host.counts["nvme0q1"] = [0, 0]
    assert shown(host.read(2 * BLOCK)) == before
    del host.counts["dev11"]
    gone = shown(host.read(1))
    assert "dev11" not in gone
    assert before - {"dev11"} <= gone


def test_reset_counters_give_no_negative_share() -> None:
    host = Host()
    host.read(1)
    host.counts = {name: [0, 0] for name in host.counts}
    found = host.read(BLOCK)
    assert all(math.isnan(value) for (metric, _), value in found.items() if metric == "cpu.irq.source_top_pct")
    assert found["cpu.irq.source", "41:dev11"] == 0
