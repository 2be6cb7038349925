"""What the kernel says of its hardware in one line: a table of patterns, and the words that they find.

To add one: a row with a text that such lines hold and no other line of a healthy machine does, and a line of a real
kernel in tests/unit/producers/test_kernel_events.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PCI: Final = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
DISK: Final = r"(?P<disk>[\w!-]{1,32})"
LINK: Final = r"(?P<name>[A-Za-z][\w.@-]{0,14})"
DRIVER: Final = r"(?P<driver>[\w-]{1,32})"

LEVELS: Final[Mapping[str, str]] = {
    "ce": "warning",
    "ue": "critical",
    "corrected": "info",
    "correctable": "info",
    "uncorrected (non-fatal)": "warning",
    "uncorrectable (non-fatal)": "warning",
    "non-fatal": "warning",
    "uncorrectable": "critical",
    "uncorrected (fatal)": "critical",
    "uncorrectable (fatal)": "critical",
    "fatal": "critical",
    "recoverable": "warning",
}
"""Severity by the word that a line has for it."""
DRIVERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("nvidia", "amdgpu", "habanalabs"), "gpu"),
    **dict.fromkeys(("nvme", "ahci", "megaraid_sas", "mpt3sas", "aacraid", "smartpqi"), "storage"),
    **dict.fromkeys(("mlx5_core", "mlx4_core", "ixgbe", "i40e", "ice", "igb", "igc", "e1000e", "bnxt_en"), "network"),
    **dict.fromkeys(("bnx2x", "tg3", "r8169", "ena", "qede", "hfi1", "irdma", "be2net", "cxgb4"), "network"),
}
"""Subsystem of a PCIe device by its driver."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a line must look like, and what it then says.

    key      text that the line must hold, looked for first
    match    group cpu, disk, name, mc or pci is the instance, code the code, level a key of LEVELS, driver of DRIVERS
    message  what is told, with the groups; the line itself where it is empty
    """

    key: str
    match: re.Pattern[str]
    kind: str
    subsystem: str
    severity: str = "warning"
    message: str = ""


def _row(key: str, match: str, kind: str, subsystem: str, *, severity: str = "warning", message: str = "") -> Pattern:
    return Pattern(key, re.compile(match), kind, subsystem, severity, message)


PATTERNS: Final = (
    # Processors
    _row("Hardware Error]: ", r"Hardware Error\]: CPU[: ](?P<cpu>\d+)\b.{0,30}Machine Check: \d+ Bank (?P<code>\d+)",
         "machine_check", "cpu"),
    _row("Hardware Error]: ", r"Hardware Error\]: CPU[: ](?P<cpu>\d+)\b.{0,30}Machine Check Exception"
         r"(?:.{0,30}Bank (?P<code>\d+))?", "machine_check", "cpu", severity="critical"),
    _row("Hardware Error]: ", r"Hardware Error\]: CPU:(?P<cpu>\d+) \(.{1,40}\) MC(?P<code>\d+)_STATUS",
         "machine_check", "cpu"),
    _row("Hardware Error]: ", r"Hardware Error\]: (?:Hardware error from APEI|Machine check events logged|"
         r"(?:Machine check|Uncorrected|Corrected|Deferred) error|Machine check: )", "machine_check", "cpu"),
    _row("achine check", r"[Ff]atal [Mm]achine check", "machine_check", "cpu", severity="critical"),
    _row("achine check", r"Machine check events logged", "machine_check", "cpu"),
    _row("soft lockup", r"soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<code>\d+)s",
         "soft_lockup", "cpu", severity="critical", message="CPU {cpu} did not schedule for {code} s"),
    _row("LOCKUP", r"hard LOCKUP on cpu (?P<cpu>\d+)", "hard_lockup", "cpu", severity="critical",
         message="CPU {cpu} did not take interrupts"),
    _row("LOCKUP", r"[Hh]ard LOCKUP", "hard_lockup", "cpu", severity="critical"),
    _row("stall", r"INFO: rcu\w{0,20} (?:self-)?detected.{0,20} stalls? on (?:CPU(?:s/tasks)?|tasks)"
         r":?(?: \{ ?(?P<cpu>\d+))?", "rcu_stall", "cpu", severity="critical"),
    _row("starved", r"rcu\w{0,20} kthread (?:timer wakeup didn't happen|starved) for \d+ jiffies",
         "rcu_stall", "cpu", severity="critical"),
    _row("blocked", r"INFO: task .{1,64} blocked .{0,160}?for more than (?P<code>\d+) seconds",
         "hung_task", "storage", message="a task was blocked for more than {code} s"),
    _row("emperature", r"CPU(?P<cpu>\d+): (?:Core t|Package t|T)emperature(?:/speed)? (?:is )?above threshold",
         "thermal", "cpu"),
    _row("emperature", r"CPU(?P<cpu>\d+): (?:Core t|Package t|T)emperature(?:/speed)? normal",
         "thermal", "cpu", severity="info"),
    _row("temperature", r"[Cc]ritical temperature reached|temperature (?:is )?too high|over-?temperature",
         "thermal", "cpu", severity="critical"),
    _row("igh temperature", rf"{DRIVER} {PCI}: .{{0,60}}[Hh]igh temperature", "thermal", "cpu"),
    _row("CPU", r"\bCPU ?(?P<cpu>\d+)(?: is now offline|: shutdown| killed)", "device_gone", "cpu"),
    _row("rocessor", r"Booting Node \d+,? Processors?\s+#?(?P<cpu>\d+)|CPU(?P<cpu2>\d+): Booted secondary processor",
         "device_back", "cpu", severity="info"),
    # Memory
    _row("EDAC", r"EDAC (?:\w{1,20} )?MC(?P<mc>\d+): (?:\d+ )?(?P<level>CE|UE)\b", "memory_error", "memory"),
    _row("EDAC", r"EDAC (?:\w{1,20} )?MC(?P<mc>\d+): HANDLING MCE MEMORY ERROR", "memory_error", "memory"),
    _row("hardware memory error", r"[Uu]ncorrected hardware memory error",
         "memory_error", "memory", severity="critical", message="an uncorrected error of main memory"),
    _row("hardware error", rf"{DRIVER} {PCI}: .{{0,80}}\d (?P<level>correctable|uncorrectable) hardware errors?"
         r" detected", "memory_error", "gpu"),
    _row("Memory failure", r"Memory failure: (?P<page>0x[0-9a-f]{1,16}): ",
         "memory_error", "memory", severity="critical", message="a page of memory failed: {page}"),
    _row("ffline", r"Offlined Pages|[Oo]fflined? memory block", "device_gone", "memory"),
    _row("init_memory_mapping", r"init_memory_mapping: \[mem", "device_back", "memory", severity="info"),
    # Links
    _row("definitely", rf"\(slave {LINK}\): link status definitely (?P<way>down|up)", "link_", "network"),
    _row("definitely", rf"link status definitely (?P<way>down|up) for interface {LINK}", "link_", "network"),
    _row("ink", rf"(?:^|[\s:])(?!DPC:|AER:){LINK}(?:: NIC|: | NIC) ?[Ll]ink (?:is )?(?P<way>(?i:down|up))\b",
         "link_", "network"),
    _row("infiniband", r"infiniband (?P<name>\w{1,32}): Port: \d+ Link (?P<way>DOWN|ACTIVE)", "link_", "network"),
    _row("Port module event", rf"{DRIVER} {PCI}: Port module event.{{0,20}}: module \d+, Cable (?:unplugged|error)",
         "link_down", "network"),
    _row("link becomes ready", rf"{LINK}: link becomes (?P<way>ready)", "link_", "network"),
    # PCIe
    _row("PCIe Bus Error", rf"(?:^|\s){DRIVER} {PCI}: (?:AER: )?PCIe Bus Error: severity=(?P<level>[^,]{{3,40}})",
         "pcie_error", "cpu"),
    _row("AER", rf"{DRIVER} {PCI}: AER: (?:Multiple )?(?P<level>[A-Z][a-z]{{3,16}}(?: \([A-Za-z-]{{3,12}}\))?)"
         r" error (?:message )?received", "pcie_error", "cpu"),
    _row("DPC", rf"{DRIVER} {PCI}: .{{0,10}}DPC: (?:containment event|unmasked uncorrectable)",
         "pcie_error", "cpu", severity="critical"),
    _row("AER", rf"{DRIVER} {PCI}: AER: device recovery failed", "pcie_error", "cpu", severity="critical"),
    _row("device inaccessible", rf"{DRIVER} {PCI}: .{{0,20}}Unable to change power state .{{0,40}}device inaccessible",
         "pcie_error", "cpu", severity="critical"),
    _row("pciehp", rf"{PCI}: pciehp: Slot\(\S{{1,12}}\): (?:Link Down|Card not present)", "device_gone", "cpu"),
    _row("RmInitAdapter", rf"NVRM: GPU {PCI}: RmInitAdapter failed", "gpu_lost", "gpu", severity="critical"),
    # Disks and file systems
    _row("EXT4-fs", rf"EXT4-fs error \(device {DISK}\)", "filesystem_error", "storage", severity="critical"),
    _row("read-only", rf"\({DISK}\): [Rr]emounting filesystem read-only",
         "filesystem_error", "storage", severity="critical"),
    _row("read-only", r"[Rr]emounting (?:filesystem|file system)? ?read-only|[Ff]orced? read-?only",
         "filesystem_error", "storage", severity="critical"),
    _row("XFS (", rf"XFS \({DISK}\): .{{0,120}}(?:[Cc]orruption|I/O [Ee]rror|[Ss]hutdown|[Ss]hut(?:ting)? down|"
         r"[Uu]nmount and run)", "filesystem_error", "storage", severity="critical"),
    _row("BTRFS", rf"BTRFS:? (?:error|critical) \(device {DISK}", "filesystem_error", "storage", severity="critical"),
    _row("forced readonly", rf"\(device {DISK}.{{0,20}}\).{{0,20}}: forced readonly",
         "filesystem_error", "storage", severity="critical"),
    _row("borting journal", rf"Aborting journal on device {DISK}", "filesystem_error", "storage", severity="critical"),
    _row("-fs error", rf"-fs error \(device {DISK}\)", "filesystem_error", "storage", severity="critical"),
    _row("-fs (", rf"-fs \({DISK}\): error", "filesystem_error", "storage", severity="critical"),
    _row("uffer I/O error", rf"Buffer I/O error on dev(?:ice)? {DISK}", "disk_error", "storage"),
    _row(" error, dev ", r"(?:I/O|medium|target|space allocation|protection|timeout|transport|nexus|resource)"
         rf" error, dev {DISK}, sector", "disk_error", "storage"),
    _row("nvme nvme", r"nvme (?P<name>nvme\d+): (?:controller is down|Removing after probe failure|Device not ready|"
         r"Disabling device after reset failure|.{0,120}(?:failed to|disabled due))", "disk_error", "storage",
         severity="critical"),
    _row("nvme nvme", r"nvme (?P<name>nvme\d+): (?:I/O|Abort|.{0,20}frozen state).{0,120}(?:timeout|reset|abort)",
         "disk_error", "storage"),
    _row("nvme nvme", r"nvme (?P<name>nvme\d+): (?:resetting controller|frozen state error detected)",
         "disk_error", "storage"),
    _row("I/O Error (sct", r"(?P<disk>nvme\d+n\d+): .{0,80}I/O Error \(sct", "disk_error", "storage"),
    _row("Result: hostbyte", rf"\[{DISK}\].{{0,40}}(?:FAILED|failed:) Result: hostbyte", "disk_error", "storage"),
    _row("Sense Key", rf"\[{DISK}\].{{0,20}}Sense Key ?: (?:Medium|Hardware|Aborted)", "disk_error", "storage"),
    _row("offline", r"rejecting I/O to offline device|Device offlined", "disk_error", "storage", severity="critical"),
    _row("Disk failure on", rf"Disk failure on {DISK}", "disk_error", "storage", severity="critical"),
    _row("uncorrectable I/O failure", r"Pool .{1,64} has encountered an uncorrectable I/O failure",
         "filesystem_error", "storage", severity="critical"),
    _row("Emask", r"(?P<name>ata\d+)(?:\.\d+)?: exception Emask", "disk_error", "storage"),
)  # fmt: skip
