"""The look-out as a whole: a line in the log, a storm in it, a disk that goes, become few notices of the right host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from producers.limit import EVERY_NS
from producers.notices import Notices
from producers.reading import Host
from producers.watch import Watch, new_watch
from schemas.records import Event
from schemas.settings import AgentSettings
from tests.unit.producers.tree import FakeClock


class Scene:
    """A watch over a log in a file and a small /sys."""

    def __init__(self, root: Path, kmsg: str) -> None:
        self.kmsg = root / "kmsg"
        self.kmsg.write_text("4,1,1,-;NVRM: Xid (PCI:0000:cb:00): 79, before the agent began\n")
        self.sys = root / "sys"
        self.disk = self.sys / "block/sda"
        (self.disk / "device").mkdir(parents=True)
        (self.sys / "devices/system/cpu").mkdir(parents=True)
        (self.sys / "devices/system/cpu/online").write_text("0-3\n")
        self.clock = FakeClock()
        self.notices = Notices(self.clock.wall_ns)
        settings = AgentSettings(kmsg=str(root / kmsg) if kmsg else "")
        host = Host({"sys": str(self.sys)}, self.clock.monotonic_ns, settings=settings, notices=self.notices)
        host.gpus.learn("GPU-1", "00000000:CB:00.0", "gpu3")
        self.watch: Watch = new_watch(host, self.clock)
        self.watch.start()

    def say(self, *lines: str) -> None:
        with self.kmsg.open("a") as file:
            file.writelines(f"4,2,1,-;{line}\n" for line in lines)

    def look(self, pass_ns: int = 1_000_000_000) -> list[Event]:
        self.clock.pass_ns(pass_ns)
        self.watch.look()
        return self.notices.drain("host-1", "s", "1.0")


NewScene = Callable[[str], Scene]


@pytest.fixture
def new_scene(tmp_path: Path) -> Iterator[NewScene]:
    """Makes a scene whose log has this name, and closes it."""
    scenes: list[Scene] = []

    def make(kmsg: str) -> Scene:
        scenes.append(Scene(tmp_path, kmsg))
        return scenes[-1]

    yield make
    for each in scenes:
        each.watch.close()


@pytest.fixture
def scene(new_scene: NewScene) -> Scene:
    return new_scene("kmsg")


def test_an_xid_in_the_log_becomes_an_event(scene: Scene) -> None:
    assert scene.look() == []
    scene.say("NVRM: Xid (PCI:0000:cb:00): 48, pid=7, name=secret, DBE")
    [event] = scene.look()
    assert (event.host, event.kind, event.instance, event.code) == ("host-1", "xid", "gpu3", 48)
    assert (event.source, event.severity, event.message) == ("kernel log", "critical", "Xid 48 on 0000:cb:00: DBE")
    assert scene.watch.problem == ""
    scene.watch.close()


def test_a_disk_that_goes_is_told_without_a_log(new_scene: NewScene) -> None:
    scene = new_scene("")
    (scene.disk / "device").rmdir()
    scene.disk.rmdir()
    [event] = scene.look()
    assert (event.kind, event.instance, event.source) == ("device_gone", "sda", "agent")
    assert scene.watch.problem == ""


def test_what_the_log_and_the_lists_say_of_one_processor_is_told_once(scene: Scene) -> None:
    online = scene.sys / "devices/system/cpu/online"
    online.write_text("0-2\n")
    scene.say("smpboot: CPU 3 is now offline")
    [event] = scene.look()
    assert (event.kind, event.instance, event.source) == ("device_gone", "cpu3", "kernel log")
    online.write_text("0-3\n")
    [event] = scene.look()
    assert (event.kind, event.instance, event.source) == ("device_back", "cpu3", "agent")


def test_a_missing_log_is_a_problem_in_words(new_scene: NewScene) -> None:
    scene = new_scene("none")
    assert "not there, as in most containers" in scene.watch.problem
    assert scene.look() == []


def test_a_storm_is_few_events_and_its_size_is_known(scene: Scene) -> None:
    scene.say(*["NVRM: Xid (PCI:0000:cb:00): 13, Graphics SM Warp Exception"] * 10_000)
    events = [event for _ in range(2 * EVERY_NS // 10**9) for event in scene.look()]
    assert 2 <= len(events) <= 4
    assert events[0].message.startswith("Xid 13")
    assert 1 + sum(int(re.findall(r"\d+", event.message)[0]) for event in events[1:]) == 10_000


def test_what_is_too_much_to_tell_is_counted(scene: Scene) -> None:
    scene.say(*[f"mlx5_core 0000:5e:00.0 e{number}: Link down" for number in range(3000)])
    events = [event for _ in range(400) for event in scene.look()]
    lost = [event for event in events if event.kind == "samples_lost"]
    assert sum(event.code or 0 for event in lost) == 1000
    assert len({event.instance for event in events if event.kind == "link_down"}) == 2000


def test_a_source_that_stumbles_does_not_stop_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(*_: object) -> None:
        raise ZeroDivisionError("made up")

    monkeypatch.setattr("producers.kernel_events.KernelEvents.__call__", stumble)
    scene.say("anything")
    (scene.disk / "device").rmdir()
    scene.disk.rmdir()
    assert [event.kind for event in scene.look()] == ["device_gone"]
    assert "cannot look out for events" in caplog.text
