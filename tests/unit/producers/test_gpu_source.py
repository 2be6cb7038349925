"""The parent's side with a process of paper and a clock that a test moves: what cannot be had otherwise in seconds."""

from __future__ import annotations

import math
import struct
from array import array
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from producers.collectors.gpu import GPU
from producers.gpu.fields import SECOND_NS
from producers.gpu.process import STALE_KEY, GpuSource
from producers.gpu.wire import TIME, VALUES, Down, GpuId, Hello, Lost, Orders, Xid, pack, say
from producers.reading import Host, Problem, Texts
from schemas.settings import AgentSettings
from tests.unit.producers.readings import Values, values
from tests.unit.producers.tree import FakeClock

CHANNELS = (("gpu.temp", "gpu0"), ("gpu.temp", "gpu1"))


@dataclass
class Paper:
    """A process that says what a test puts into `out`, answers as long as `works`, and dies when `mortal`."""

    orders: Orders
    gpus: int = 2
    works: bool = True
    mortal: bool = True
    where: str = ""
    pid: int = 4711
    out: deque[bytes] = field(default_factory=deque)
    kills: int = 0
    how: str | None = None
    closed: bool = False
    young: bool = True

    def __post_init__(self) -> None:
        ids = tuple(
            GpuId(f"gpu{index}", f"GPU-{index}", f"00000000:{index + 1:02X}:00.0", "H100") for index in range(self.gpus)
        )
        self.out.append(say(Hello(ids, (), CHANNELS, ())))

    def ask(self) -> None:
        """As in Held."""
        if self.works and self.how is None:
            self.out.append(pack(VALUES, TIME.pack(5) + array("d", [60, 61]).tobytes()))

    def receive(self) -> bytes | None:
        """As in Held."""
        if self.young:
            # Nobody answers in the moment of being born.
            self.young = False
            return b""
        if self.out:
            return self.out.popleft()
        return b"" if self.how is None else None

    def finish(self) -> None:
        """As in Held."""
        if self.works:
            self.how = ""

    def kill(self) -> None:
        """As in Held."""
        self.kills += 1
        if self.mortal:
            self.how = "was ended by SIGKILL"

    def ended(self) -> str | None:
        """As in Held."""
        return self.how

    def asks(self) -> str:
        """As in Held."""
        return self.where

    def cpu_s(self) -> float:
        """As in Held."""
        return 0.25

    def close(self) -> None:
        """As in Held."""
        self.closed = True

    def end(self) -> None:
        """As in Held."""
        self.finish()
        self.close()


class Desk:
    """A source over processes of paper."""

    def __init__(self, root: Path) -> None:
        library = root / "libnvidia-ml.so.1"
        library.touch()
        self.root = root
        self.clock = FakeClock()
        roots = {"sys": str(root / "sys"), "proc": str(root / "proc")}
        settings = AgentSettings(nvml=str(library))
        self.host = Host(roots, self.clock.monotonic_ns, settings=settings)
        self.papers: list[Paper] = []
        self.source = GpuSource(GPU, self.host, spawn=self._spawn)
        self._parser = GPU.parser()

    def _spawn(self, orders: Orders) -> Paper:
        self.papers.append(Paper(orders))
        return self.papers[-1]

    def texts(self) -> Texts | None:
        """One sample."""
        now_ns = self.clock.monotonic_ns()
        self.source.request(now_ns)
        reading = self.source.read(now_ns)
        self.clock.pass_ns(SECOND_NS // 10)
        return None if reading is None else reading[1]

    def seconds(self, count: float) -> Values:
        """Sample for some time; the last values there were."""
        found: Texts | None = None
        for _ in range(round(10 * count)):
            found = self.texts() or found
        return {} if found is None else values(self._parser(found))

    def kinds(self) -> list[tuple[str, str]]:
        """Kind and instance of what was noticed since the last call."""
        return [(event.kind, event.instance) for event in self.host.notices.drain("h", "s", "")]

    def problems(self) -> list[Problem]:
        """As the frame asks for them."""
        return self.source.problems(self.clock.monotonic_ns(), 5 * SECOND_NS)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Two GPUs that answer."""
    return Desk(tmp_path)


def test_a_good_day(desk: Desk) -> None:
    found = desk.seconds(10)
    assert (found["gpu.temp", "gpu0"], found["gpu.temp", "gpu1"]) == (60, 61)
    assert found["gpu.stale", ""] == 0
    assert len(desk.papers) == 1
    assert desk.papers[0].orders.names == {}
    assert (desk.kinds(), desk.problems(), desk.source.errors) == ([], [], 0)
    assert desk.source.cpu_s() == 0.25
    desk.source.close()
    assert desk.papers[0].closed


def test_a_hang_is_reported_then_ended_once(desk: Desk) -> None:
    desk.seconds(2)
    (paper,) = desk.papers
    paper.works, paper.mortal, paper.where = False, False, "gpu1"
    found = desk.seconds(4)
    assert math.isnan(found["gpu.temp", "gpu0"])
    assert 3 < found["gpu.stale", ""] < 4.1
    assert desk.problems() == []
    found = desk.seconds(41)
    assert 44 < found["gpu.stale", ""] < 45.1
    (problem,) = desk.problems()
    assert problem.kind == "hung"
    assert "gpu1" in problem.reason
    assert (paper.kills, desk.source.errors, len(desk.papers)) == (0, 1, 1)
    # It is inside the driver, where no signal reaches it.
    desk.seconds(500)
    assert (paper.kills, len(desk.papers)) == (1, 1)
    desk.seconds(200)
    assert paper.kills == 1
    assert len(desk.papers) == 2
    assert [problem.path for problem in desk.problems()] == ["process 4711"]
    # Another one that hangs is not left behind, too.
    second = desk.papers[1]
    second.works = second.mortal = False
    desk.seconds(3000)
    assert (second.kills, len(desk.papers)) == (1, 2)
    # The first one comes back at last, and makes room.
    paper.how = "was ended by SIGKILL"
    desk.seconds(30)
    assert paper.closed
    assert len(desk.papers) == 3
    assert desk.seconds(1)["gpu.temp", "gpu0"] == 60


def test_an_answer_that_comes_after_all(desk: Desk) -> None:
    desk.seconds(2)
    (paper,) = desk.papers
    paper.works = False
    desk.seconds(45)
    assert [problem.kind for problem in desk.problems()] == ["hung"]
    paper.works = True
    paper.ask()
    found = desk.seconds(1)
    assert (found["gpu.temp", "gpu0"], found["gpu.stale", ""]) == (60, 0)
    assert (desk.problems(), len(desk.papers), paper.kills) == ([], 1, 0)


def test_a_slow_start_is_no_hang(desk: Desk) -> None:
    desk.texts()
    (paper,) = desk.papers
    paper.out.clear()
    paper.works = False
    desk.seconds(20)
    assert [(problem.kind, problem.path) for problem in desk.problems()] == [("missing", "NVML")]
    desk.seconds(15)
    assert [(problem.kind, problem.path) for problem in desk.problems()] == [("hung", "NVIDIA driver")]


def test_the_gpu_that_a_killed_process_hung_in_is_left_out(desk: Desk) -> None:
    desk.seconds(2)
    paper = desk.papers[0]
    paper.works, paper.where = False, "gpu1"
    desk.seconds(65)
    assert paper.kills == 1
    assert desk.kinds() == [("gpu_lost", "gpu1")]
    assert desk.papers[1].orders.unwanted == ("gpu1",)
    assert desk.papers[1].orders.names == {"GPU-0": "gpu0", "GPU-1": "gpu1"}
    found = desk.seconds(1)
    assert (found["gpu.temp", "gpu0"], found["gpu.lost", "gpu1"], found["gpu.lost", "gpu0"]) == (60, 1, 0)
    assert [problem.path for problem in desk.problems()] == ["gpu1"]
    # Much later it gets another chance.
    desk.seconds(120)
    assert desk.papers[2].orders.unwanted == ()
    assert desk.kinds() == [("gpu_back", "gpu1")]
    assert desk.problems() == []


def test_crashes_are_told_once_and_restarts_slow_down(desk: Desk) -> None:
    desk.seconds(2)
    starts = []
    for _ in range(8):
        desk.papers[-1].how = "was ended by SIGSEGV"
        count = len(desk.papers)
        passed = 0
        while len(desk.papers) == count:
            desk.texts()
            passed += 1
        desk.papers[-1].out.clear()
        starts.append(round(passed / 10))
    assert starts == [1, 2, 4, 8, 16, 32, 60, 60]
    assert desk.kinds() == [("source_hung", "")]
    assert [problem.kind for problem in desk.problems()] == ["failing"]
    desk.papers[-1].ask()
    desk.seconds(1)
    assert desk.kinds() == [("source_back", "")]
    # After a minute without one, the next crash is the first.
    desk.seconds(70)
    desk.papers[-1].how = "ended with status 1"
    desk.seconds(1.3)
    assert len(desk.papers) == 10


def test_lost_gpus_are_looked_for_ever_less_often(desk: Desk) -> None:
    desk.seconds(2)
    desk.papers[-1].out.append(say(Lost("gpu1", "GPU is lost")))
    assert desk.seconds(1)["gpu.lost", "gpu1"] == 1
    for pause in (60, 120, 240, 480, 600, 600):
        count = len(desk.papers)
        passed = 0
        while len(desk.papers) == count:
            desk.texts()
            passed += 1
        # The next process does not find it either.
        desk.papers[-1].out[0] = say(Hello((GpuId("gpu0", "GPU-0", "0000:01:00.0", ""),), (), CHANNELS, ()))
        assert round(passed / 10) in (pause, pause - 1)
    assert desk.kinds() == [("gpu_lost", "gpu1")]
    assert desk.host.gpus.instance("0000:02:00.0") == "gpu1"


def test_a_library_that_does_not_start_is_tried_again_rarely(desk: Desk) -> None:
    (desk.root / "proc/driver/nvidia/gpus/0000:b3:00.0").mkdir(parents=True)
    desk.texts()
    reason = "library and kernel module are of different versions"
    starts = []
    for _ in range(5):
        paper = desk.papers[-1]
        paper.out.clear()
        paper.out.append(say(Down(reason, False)))
        paper.how = ""
        count = len(desk.papers)
        passed = 0
        while len(desk.papers) == count:
            desk.texts()
            passed += 1
        starts.append(round(passed / 10))
    assert starts == [60, 120, 240, 480, 600]
    assert desk.host.gpus.instance("PCI:0000:b3:00") == "gpu0"
    assert [(problem.kind, problem.reason) for problem in desk.problems()] == [("failing", reason)]
    assert desk.kinds() == []


def test_xids_carry_name_and_time(desk: Desk) -> None:
    desk.seconds(1)
    desk.papers[0].out.append(say(Xid("gpu1", 94, 17)))
    desk.texts()
    desk.texts()
    (event,) = desk.host.notices.drain("h", "s", "")
    assert (event.kind, event.code, event.instance, event.time_ns) == ("xid", 94, "gpu1", 17)
    assert "GPU-1" in event.message
    assert "0000:02:00.0" in event.message


@pytest.mark.parametrize("noise", [b"ERR! not supported\n", b"\xff" * 40, pack(VALUES, b"12"), pack(4, b"{}")])
def test_noise_in_the_pipe_ends_the_process(desk: Desk, noise: bytes) -> None:
    desk.seconds(1)
    desk.papers[0].out.append(noise)
    desk.seconds(0.5)
    assert desk.papers[0].kills == 1
    found = desk.seconds(3)
    assert len(desk.papers) == 2
    assert found["gpu.temp", "gpu1"] == 61


def plug(root: Path, address: str) -> None:
    """A GPU on the bus."""
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")


def test_gpus_that_the_library_does_not_list(desk: Desk) -> None:
    for bus in ("01", "02", "b3"):
        plug(desk.root, f"0000:{bus}:00.0")
    found = desk.seconds(1)
    assert found["gpu.missing", ""] == 1
    (event,) = desk.host.notices.drain("h", "s", "")
    assert (event.kind, event.severity, event.instance) == ("gpu_lost", "critical", "")
    assert "0000:b3:00.0" in event.message
    # Said once, however often it is looked for.
    desk.seconds(300)
    assert len(desk.papers) > 2
    assert desk.kinds() == []


def test_one_that_the_driver_names_is_lost_by_name(desk: Desk) -> None:
    for index in (1, 2, 0xB3):
        plug(desk.root, f"0000:{index:02x}:00.0")
        (desk.root / f"proc/driver/nvidia/gpus/0000:{index:02x}:00.0").mkdir(parents=True)
    found = desk.seconds(1)
    assert (found["gpu.missing", ""], found["gpu.lost", "gpu2"]) == (1, 1)
    assert desk.kinds() == [("gpu_lost", "gpu2")]
    assert desk.host.gpus.instance("PCI:0000:b3:00") == "gpu2"


def test_a_gpu_that_is_plugged_in_is_found(desk: Desk) -> None:
    desk.seconds(20)
    assert len(desk.papers) == 1
    plug(desk.root, "0000:01:00.0")
    desk.seconds(11)
    assert len(desk.papers) == 2
    assert desk.kinds() == []


def test_without_driver_and_gpu_there_is_one_word(desk: Desk) -> None:
    Path(desk.host.settings.nvml).unlink()
    assert desk.seconds(100) == {}
    assert desk.papers == []
    assert desk.source.idle()
    assert [problem.kind for problem in desk.problems()] == ["missing"]
    assert (desk.kinds(), desk.source.errors) == ([], 0)


def test_a_process_that_cannot_be_started(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def refuse(orders: Orders) -> Paper:
        raise OSError(11, "Resource temporarily unavailable")

    desk.source = GpuSource(GPU, desk.host, spawn=refuse)
    desk.seconds(5)
    (problem,) = desk.problems()
    assert problem.kind == "failing"
    assert "Resource temporarily unavailable" in problem.reason


def test_age_counts_from_the_last_answer(desk: Desk) -> None:
    desk.seconds(2)
    desk.papers[0].works = False
    ages: list[float] = []
    for _ in range(30):
        found = desk.texts()
        if found is not None:
            ages += struct.unpack("d", found[STALE_KEY])
    grown = [age for age in ages if age]
    assert grown == sorted(grown)
    assert grown[0] >= 1
    assert len(grown) >= 15
