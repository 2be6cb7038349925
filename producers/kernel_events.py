"""Lines of the kernel's log to notices: what the kernel says of its hardware.

Kernel text is not to be trusted: parts of it come from devices and processes. Lines are cut, no pattern repeats a
repetition, and names of processes, which tell of the workload, are left out. What one line says by itself is a row of
`producers.kernel_patterns`; here is what takes several lines, or a number that means something.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from producers.kernel_patterns import DRIVERS, LEVELS, PATTERNS, PCI, Pattern
from producers.notices import Notice
from producers.reading import Wanted, everything

SOURCE: Final = "kernel log"
LONGEST_LINE: Final = 1000
MINUTE_NS: Final = 60_000_000_000
FALLEN: Final = 79
SAME_FALL_NS: Final = 5 * MINUTE_NS
"""A GPU that falls off the bus is told of in several ways, by several parts of the driver; so long it is one fall."""
CONTEXT_NS: Final = 2_000_000_000
"""So long a line explains those after it."""
APPLICATION_XIDS: Final = frozenset({13, 31, 32, 43, 45, 68, 69, 126})
"""XIDs that a faulty program causes on sound hardware; a broken GPU causes them, too."""
DEVICE_XIDS: Final = frozenset({48, 61, 62, 64, 74, 79, 94, 95, 109, 110, 119, 120, 121, 136, 140, 142, 143, 149, 154})
"""XIDs after which a GPU, its memory or its links are not to be used before somebody has looked."""
XID: Final = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{4,20})[^)]{0,40}\): (?P<code>\d{1,5})\b,?(?P<rest>.*)"
)
SXID: Final = re.compile(
    rf"(?P<name>nvswitch\d{{1,4}}).{{0,8}}: SXid \((?:PCI:)?{PCI}\): (?P<code>\d{{1,7}})\b,? ?(?P<rest>.*)"
)
FATAL: Final = re.compile(r"\bFatal\b")
NVIDIA_PCI: Final = re.compile(rf"NVRM:.{{0,60}}?\b(?:PCI:)?{PCI}")
PROCESS: Final = re.compile(r"\b(?:pid|name|comm)=[^,]{0,64}(?:, ?|$)|\bcomm [^:,]{0,32}[:,] ?|, channel_pid=\d+")
CONSTRAINT: Final = re.compile(r"oom-kill:constraint=(?P<constraint>\w{1,40})")
KILLED: Final = re.compile(r"\bKill(?:ed)? process \d+")
SIZE: Final = re.compile(r"\b(?:total-vm|anon-rss|file-rss|shmem-rss|pgtables|oom_score_adj):-?\d{1,15}(?:kB)?")
GHES: Final = re.compile(r"\[Hardware Error\]:\s+(?:event )?(?P<what>severity|section_type): (?P<value>[\w ,-]{3,60})")
PARTITION: Final = re.compile(
    r"(?P<disk>(?:nvme\d+(?:c\d+)?n\d+|mmcblk\d+|nbd\d+)(?=p\d)|(?:sd|hd|vd|xvd)[a-z]+(?=\d))"
)

SECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "memory error": ("memory_error", "memory"),
    "PCIe error": ("pcie_error", "cpu"),
}
DIMENSIONS: Final[Mapping[str, str]] = {"link_down": "interface", "link_up": "interface", "disk_error": "disk"}


class KernelEvents:
    """Parser of the log. What a line says may depend on those shortly before it.

    gpu     name that telemetry has for the GPU at a PCI address; empty where there is none
    wanted  which links and disks are to be told of
    """

    def __init__(self, gpu: Callable[[str], str] = lambda pci: "", wanted: Wanted = everything) -> None:
        self._gpu = gpu
        self._wanted = wanted
        self._fallen: dict[str, int] = {}
        self._fallen_pci = ("", 0)
        self._severity = ("", 0)
        self._killing: Notice | None = None

    def __call__(self, line: str, time_ns: int) -> list[Notice]:
        """What `line` says, if anything. Only its first LONGEST_LINE characters are looked at."""
        text = line[:LONGEST_LINE].strip()
        if "NVRM" in text or "SXid" in text:
            found = self._nvidia(text, time_ns)
        elif "oom-kill:" in text or " process " in text:
            return self._oom(text, time_ns)
        else:
            found = None
        found = found or self._ghes(text, time_ns) or self._table(text, time_ns)
        return [found] if found else []

    def overdue(self, now_ns: int) -> list[Notice]:
        """What was held back for a line that has not come."""
        held = self._killing
        if held is None or now_ns - held.time_ns < CONTEXT_NS:
            return []
        self._killing = None
        return [held]

    def _nvidia(self, text: str, time_ns: int) -> Notice | None:
        if match := SXID.search(text):
            severity = "critical" if FATAL.search(match["rest"]) else "warning"
            message = f"SXid {match['code']} on {match['pci']}: {match['rest']}"
            return Notice(time_ns, "xid", "gpu", severity, message, SOURCE, match["name"], int(match["code"]))
        if match := XID.search(text):
            code, rest = int(match["code"]), PROCESS.sub("", match["rest"].strip()).strip(" ,")
            if code == FALLEN and self._is_down(match["pci"], time_ns):
                return None
            grave = code in DEVICE_XIDS or FATAL.search(rest)
            severity = "critical" if grave else "info" if code in APPLICATION_XIDS else "warning"
            message = f"Xid {code} on {match['pci']}" + (f": {rest}" if rest else "")
            return Notice(time_ns, "xid", "gpu", severity, message, SOURCE, self._device(match["pci"]), code)
        if match := NVIDIA_PCI.search(text):
            self._fallen_pci = (match["pci"], time_ns)
        if "fallen off the bus" not in text:
            return None
        pci, since = self._fallen_pci
        pci = pci if time_ns - since <= CONTEXT_NS else ""
        if self._is_down(pci, time_ns):
            return None
        message = f"Xid {FALLEN} on {pci or 'a GPU'}: the GPU has fallen off the bus (told without a number)"
        return Notice(time_ns, "xid", "gpu", "critical", message, SOURCE, self._device(pci), FALLEN)

    def _is_down(self, pci: str, time_ns: int) -> bool:
        """Whether the fall of this GPU has been told; from now on it has. One without an address is the last one."""
        self._fallen = {key: when for key, when in self._fallen.items() if time_ns - when <= SAME_FALL_NS}
        key = pci.lower().partition(".")[0][-10:]
        if key in self._fallen or (not key and self._fallen):
            return True
        if "" in self._fallen:
            self._fallen[key] = self._fallen.pop("")
            return True
        self._fallen[key] = time_ns
        return False

    def _oom(self, text: str, time_ns: int) -> list[Notice]:
        told = self.overdue(time_ns)
        if match := CONSTRAINT.search(text):
            told += [self._killing] if self._killing else []
            limited = "MEMCG" in match["constraint"]
            self._killing = Notice(
                time_ns,
                "oom_kill",
                "memory",
                "warning" if limited else "critical",
                f"the kernel kills a process to get memory: constraint {match['constraint']}",
                SOURCE,
                "",
                None,
            )
            return told
        if not KILLED.search(text):
            found = self._table(text, time_ns)
            return [*told, found] if found else told
        limited = "emory cgroup out of memory" in text
        held, self._killing = self._killing, None
        constraint = [held.message.rpartition(": ")[2]] if held else []
        details = ", ".join([*constraint, *SIZE.findall(text)])
        severity = held.severity if held else "warning" if limited else "critical"
        where = "a memory cgroup" if limited else "the machine"
        message = f"{where} is out of memory, a process was killed" + (f": {details}" if details else "")
        return [*told, Notice(time_ns, "oom_kill", "memory", severity, message, SOURCE, "", None)]

    def _ghes(self, text: str, time_ns: int) -> Notice | None:
        if not (match := GHES.search(text)):
            return None
        if match["what"] == "severity":
            self._severity = (match["value"], time_ns)
            return None
        kind = next((kind for words, kind in SECTIONS.items() if words in match["value"]), None)
        if kind is None:
            return None  # the line that began the report has told of it
        word, since = self._severity
        level = LEVELS.get(word.strip().lower(), "warning") if time_ns - since <= CONTEXT_NS else "warning"
        message = f"the firmware reports a {match['value']}" + (f", {word}" if word else "")
        return Notice(time_ns, *kind, level, message, SOURCE, "", None)

    def _table(self, text: str, time_ns: int) -> Notice | None:
        for pattern in PATTERNS:
            if pattern.key in text and (match := pattern.match.search(text)):
                notice = self._notice(pattern, match, text, time_ns)
                dimension = DIMENSIONS.get(notice.kind, "")
                return notice if self._wanted(dimension, notice.instance) else None
        return None

    def _notice(self, pattern: Pattern, match: re.Match[str], text: str, time_ns: int) -> Notice:
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        message = pattern.message.format(**groups) if pattern.message else PROCESS.sub("", text)
        code = int(groups["code"]) if "code" in groups else None
        notice = Notice(
            time_ns, pattern.kind, pattern.subsystem, pattern.severity, message, SOURCE, self._instance(groups), code
        )
        if way := groups.get("way"):
            up = way.lower() != "down"
            notice = replace(notice, kind="link_up" if up else "link_down", severity="info" if up else "warning")
        if level := LEVELS.get(groups.get("level", "").strip().lower()):
            notice = replace(notice, severity=level)
        if driver := groups.get("driver"):
            named = bool(self._gpu(groups["pci"]))
            notice = replace(notice, subsystem="gpu" if named else DRIVERS.get(driver, pattern.subsystem))
        return notice

    def _instance(self, groups: Mapping[str, str]) -> str:
        if cpu := groups.get("cpu") or groups.get("cpu2"):
            return f"cpu{cpu}"
        if disk := groups.get("disk"):
            part = PARTITION.match(disk)
            return part["disk"] if part else disk
        if controller := groups.get("mc"):
            return f"mc{controller}"
        return groups.get("name") or self._device(groups.get("pci", ""))

    def _device(self, pci: str) -> str:
        """Name of the device at `pci`: that of telemetry for a GPU, else its address."""
        return (self._gpu(pci) if pci else "") or pci
