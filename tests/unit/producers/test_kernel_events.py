"""What lines of real kernels say: kind, device, severity and number; what they must not say; and what they may cost."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from producers.kernel_events import CONTEXT_NS, SAME_FALL_NS, KernelEvents
from producers.kernel_patterns import PATTERNS
from producers.notices import Notice
from schemas.catalogue import SUBSYSTEMS
from schemas.codec import SEVERITIES
from schemas.records import EVENT_KINDS

NOW = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


def read(lines: Sequence[str], events: KernelEvents | None = None, at_ns: int = NOW) -> list[Notice]:
    """Notices of lines that come together."""
    events = events or KernelEvents()
    return [notice for line in lines for notice in events(line, at_ns)]


def only(line: str) -> Notice:
    [notice] = read([line])
    assert (notice.time_ns, notice.source) == (NOW, "kernel log")
    return notice


LINES = {
    # GPU
    "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7)": (
        ("xid", "gpu", "info", "0000:cb:00", 13)
    ),
    "NVRM: Xid (PCI:0000:9b:00): 119, pid=4071838, name=python, Timeout after 45s of waiting for RPC from GPU4 GSP!": (
        ("xid", "gpu", "critical", "0000:9b:00", 119)
    ),
    "NVRM: Xid (PCI:0000:97:00): 45, pid=1818987, name=python3, Ch 00000003 caused by previous Xid 145": (
        ("xid", "gpu", "info", "0000:97:00", 45)
    ),
    "NVRM: Xid (0000:03:00): 31, Ch 0000007b, engmask 00000101, intr 10000000": (
        ("xid", "gpu", "info", "0000:03:00", 31)
    ),
    "NVRM: Xid (PCI:0000:01:00 GPU-I:01): 94, pid=12, name=a.out, Contained: SM (0x1). RST: No": (
        ("xid", "gpu", "critical", "0000:01:00", 94)
    ),
    "[ 1843.308] NVRM: Xid (PCI:0000:b3:00.0): 63, Row Remapper: New row marked for remapping": (
        ("xid", "gpu", "warning", "0000:b3:00.0", 63)
    ),
    "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)": (
        ("xid", "gpu", "warning", "nvswitch3", 12028)
    ),
    "nvidia-nvswitch0: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 32 LTSSM Fault Up": (
        ("xid", "gpu", "critical", "nvswitch0", 20034)
    ),
    "NVRM: GPU 0000:07:00.0: RmInitAdapter failed! (0x24:0x72:1417)": (
        ("gpu_lost", "gpu", "critical", "0000:07:00.0", None)
    ),
    # Machine checks
    "mce: [Hardware Error]: CPU 5: Machine Check: 0 Bank 7: 8c00004000010091": (
        ("machine_check", "cpu", "warning", "cpu5", 7)
    ),
    "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 6: be00000000800400": (
        ("machine_check", "cpu", "critical", "cpu2", 6)
    ),
    "[Hardware Error]: CPU:0 (19:1:1) MC17_STATUS[Over|CE|MiscV]: 0xdc2040000000011b": (
        ("machine_check", "cpu", "warning", "cpu0", 17)
    ),
    "mce: [Hardware Error]: Machine check events logged": ("machine_check", "cpu", "warning", "", None),
    "Machine check events logged": ("machine_check", "cpu", "warning", "", None),
    "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0": (
        ("machine_check", "cpu", "warning", "", None)
    ),
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1)": (
        ("memory_error", "memory", "warning", "mc0", None)
    ),
    "EDAC MC1: 1 UE memory read error on unknown label": ("memory_error", "memory", "critical", "mc1", None),
    "EDAC MC0: UE page 0x0, offset 0x0, grain 0, row 0, labels": ("memory_error", "memory", "critical", "mc0", None),
    "EDAC sbridge MC1: HANDLING MCE MEMORY ERROR": ("memory_error", "memory", "warning", "mc1", None),
    # Lockups
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [secret:1234]": ("soft_lockup", "cpu", "critical", "cpu3", 22),
    "NMI watchdog: BUG: soft lockup - CPU#12 stuck for 23s! [secret:31337]": (
        ("soft_lockup", "cpu", "critical", "cpu12", 23)
    ),
    "NMI watchdog: Watchdog detected hard LOCKUP on cpu 5dModules linked in": (
        ("hard_lockup", "cpu", "critical", "cpu5", None)
    ),
    "Kernel panic - not syncing: Hard LOCKUP": ("hard_lockup", "cpu", "critical", "", None),
    "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:": ("rcu_stall", "cpu", "critical", "", None),
    "rcu: INFO: rcu_sched self-detected stall on CPU": ("rcu_stall", "cpu", "critical", "", None),
    "INFO: rcu_sched self-detected stall on CPU { 3}  (t=2100 jiffies g=1 c=2 q=3)": (
        ("rcu_stall", "cpu", "critical", "cpu3", None)
    ),
    "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 7-... } 21 jiffies s: 1": (
        ("rcu_stall", "cpu", "critical", "cpu7", None)
    ),
    "rcu: rcu_sched kthread starved for 12345 jiffies! g1 f0x0": ("rcu_stall", "cpu", "critical", "", None),
    "INFO: task secret:1234 blocked for more than 120 seconds.": ("hung_task", "storage", "warning", "", 120),
    "INFO: task kworker/u8:1:77 blocked in I/O wait for more than 241 seconds.": (
        ("hung_task", "storage", "warning", "", 241)
    ),
    # Links
    "mlx5_core 0000:5e:00.0 eth0: Link down": ("link_down", "network", "warning", "eth0", None),
    "mlx5_core 0000:5e:00.0 enp94s0f0np0: Link up": ("link_up", "network", "info", "enp94s0f0np0", None),
    "ixgbe 0000:01:00.0 eth0: NIC Link is Down": ("link_down", "network", "warning", "eth0", None),
    "ixgbe 0000:01:00.0 eth0: NIC Link is Up 10 Gbps, Flow Control: RX/TX": (
        "link_up",
        "network",
        "info",
        "eth0",
        None,
    ),
    "e1000e: eth0 NIC Link is Down": ("link_down", "network", "warning", "eth0", None),
    "igb 0000:07:00.0 eth1: igb: eth1 NIC Link is Down": ("link_down", "network", "warning", "eth1", None),
    "tg3 0000:02:00.0 eno1: Link is up at 1000 Mbps, full duplex": ("link_up", "network", "info", "eno1", None),
    "r8169 0000:03:00.0 eth0: Link is Up - 1Gbps/Full - flow control off": ("link_up", "network", "info", "eth0", None),
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready": ("link_up", "network", "info", "eth0", None),
    "bond0: (slave eth1): link status definitely down, disabling slave": (
        ("link_down", "network", "warning", "eth1", None)
    ),
    "bond0: link status definitely down for interface eth2, disabling it": (
        ("link_down", "network", "warning", "eth2", None)
    ),
    "bond0: (slave eth1): link status definitely up, 40000 Mbps full duplex": (
        ("link_up", "network", "info", "eth1", None)
    ),
    # Disks and file systems
    "blk_update_request: I/O error, dev nvme0n1, sector 1234 op 0x0:(READ) flags 0x80700 phys_seg 4": (
        ("disk_error", "storage", "warning", "nvme0n1", None)
    ),
    "I/O error, dev sda, sector 12 op 0x1:(WRITE) flags 0x0": ("disk_error", "storage", "warning", "sda", None),
    "end_request: I/O error, dev vda, sector 12": ("disk_error", "storage", "warning", "vda", None),
    "blk_update_request: critical medium error, dev sdb, sector 3": ("disk_error", "storage", "warning", "sdb", None),
    "Buffer I/O error on dev sda1, logical block 0, async page read": ("disk_error", "storage", "warning", "sda", None),
    "Buffer I/O error on device nvme0n1p2, logical block 0": ("disk_error", "storage", "warning", "nvme0n1", None),
    "Buffer I/O error on dev dm-0, logical block 0, lost async page write": (
        ("disk_error", "storage", "warning", "dm-0", None)
    ),
    "nvme nvme0: I/O 123 QID 4 timeout, aborting": ("disk_error", "storage", "warning", "nvme0", None),
    "nvme nvme0: I/O tag 5 (0005) opcode 0x2 (Read) QID 4 timeout, reset controller": (
        ("disk_error", "storage", "warning", "nvme0", None)
    ),
    "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff": (
        ("disk_error", "storage", "critical", "nvme0", None)
    ),
    "nvme nvme1: Removing after probe failure status: -19": ("disk_error", "storage", "critical", "nvme1", None),
    "sd 0:0:0:0: [sdc] tag#0 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE": (
        ("disk_error", "storage", "warning", "sdc", None)
    ),
    "ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen": (
        ("disk_error", "storage", "warning", "ata1", None)
    ),
    "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm secret: reading directory lblock 0": (
        ("filesystem_error", "storage", "critical", "sda", None)
    ),
    "EXT4-fs (sda1): Remounting filesystem read-only": ("filesystem_error", "storage", "critical", "sda", None),
    "XFS (dm-0): Metadata corruption detected at xfs_buf_ioend": (
        ("filesystem_error", "storage", "critical", "dm-0", None)
    ),
    "XFS (nvme0n1p1): Corruption detected. Unmount and run xfs_repair": (
        ("filesystem_error", "storage", "critical", "nvme0n1", None)
    ),
    "BTRFS: error (device dm-0) in btrfs_commit_transaction:2: errno=-5 IO failure": (
        ("filesystem_error", "storage", "critical", "dm-0", None)
    ),
    "Aborting journal on device sda1-8.": ("filesystem_error", "storage", "critical", "sda", None),
    # PCIe
    "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0": (
        ("pcie_error", "cpu", "info", "0000:00:01.0", None)
    ),
    "pcieport 0000:00:01.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:01:00.0": (
        ("pcie_error", "cpu", "warning", "0000:00:01.0", None)
    ),
    "pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error message received from 0000:01:00.0": (
        ("pcie_error", "cpu", "critical", "0000:00:01.0", None)
    ),
    "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)": (
        ("pcie_error", "storage", "info", "0000:01:00.0", None)
    ),
    "mlx5_core 0000:41:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer": (
        ("pcie_error", "network", "critical", "0000:41:00.0", None)
    ),
    "pcieport 0000:00:03.1: DPC: containment event, status:0x1f01 source:0x0000": (
        ("pcie_error", "cpu", "critical", "0000:00:03.1", None)
    ),
    "pcieport 0000:00:03.1: pciehp: Slot(1): Link Down": ("device_gone", "cpu", "warning", "0000:00:03.1", None),
    "NVRM: Xid (PCI:0018:01:00): 145, NETIR_LINK_EVT  Nonfatal XC0 i0 Link 12 (0x1 0x2)": (
        ("xid", "gpu", "warning", "0018:01:00", 145)
    ),
    "NVRM: Xid (PCI:0018:01:00): 150, NETIR_LINK_EVT  Fatal XC0 i0 Link 12 (0x1 0x2)": (
        ("xid", "gpu", "critical", "0018:01:00", 150)
    ),
    "amdgpu 0000:c3:00.0: amdgpu: 3 uncorrectable hardware errors detected in umc block": (
        ("memory_error", "gpu", "critical", "0000:c3:00.0", None)
    ),
    "Kernel panic - not syncing: Fatal machine check": ("machine_check", "cpu", "critical", "", None),
    "mce: Uncorrected hardware memory error in user-access at 3f0c40400": (
        ("memory_error", "memory", "critical", "", None)
    ),
    "INFO: rcu_tasks detected stalls on tasks:": ("rcu_stall", "cpu", "critical", "", None),
    "CPU9: Temperature above threshold, cpu clock throttled": ("thermal", "cpu", "warning", "cpu9", None),
    "mlx5_core 0000:3b:00.0: temp_warn:144:(pid 0): High temperature on sensors with bit set 0 1": (
        ("thermal", "network", "warning", "0000:3b:00.0", None)
    ),
    "infiniband mlx5_0: Port: 1 Link DOWN": ("link_down", "network", "warning", "mlx5_0", None),
    "infiniband mlx5_0: Port: 1 Link ACTIVE": ("link_up", "network", "info", "mlx5_0", None),
    "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged": (
        ("link_down", "network", "warning", "0000:5e:00.0", None)
    ),
    "enic 0000:0b:00.0 eth4: Link UP": ("link_up", "network", "info", "eth4", None),
    "pcieport 0000:00:03.1: AER: device recovery failed": ("pcie_error", "cpu", "critical", "0000:00:03.1", None),
    "nvidia 0000:65:00.0: Unable to change power state from D3cold to D0, device inaccessible": (
        ("pcie_error", "gpu", "critical", "0000:65:00.0", None)
    ),
    "nvme0n1: I/O Cmd(0x2) @ LBA 123, 8 blocks, I/O Error (sct 0x2 / sc 0x81) MORE DNR": (
        ("disk_error", "storage", "warning", "nvme0n1", None)
    ),
    "sd 2:0:0:0: [sdb] Synchronize Cache(10) failed: Result: hostbyte=DID_NO_CONNECT driverbyte=DRIVER_OK": (
        ("disk_error", "storage", "warning", "sdb", None)
    ),
    "sd 2:0:0:0: [sdb] tag#5 Sense Key : Medium Error [current]": ("disk_error", "storage", "warning", "sdb", None),
    "sd 2:0:0:0: rejecting I/O to offline device": ("disk_error", "storage", "critical", "", None),
    "md/raid1:md0: Disk failure on sda1, disabling device.": ("disk_error", "storage", "critical", "sda", None),
    "WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended.": (
        ("filesystem_error", "storage", "critical", "", None)
    ),
    # Heat, processors and memory that come and go
    "CPU3: Core temperature above threshold, cpu clock throttled (total events = 1)": (
        ("thermal", "cpu", "warning", "cpu3", None)
    ),
    "mce: CPU7: Package temperature above threshold, cpu clock throttled (total events = 1)": (
        ("thermal", "cpu", "warning", "cpu7", None)
    ),
    "CPU3: Core temperature/speed normal": ("thermal", "cpu", "info", "cpu3", None),
    "thermal thermal_zone0: acpitz: critical temperature reached, shutting down": (
        ("thermal", "cpu", "critical", "", None)
    ),
    "smpboot: CPU 3 is now offline": ("device_gone", "cpu", "warning", "cpu3", None),
    "psci: CPU2 killed (polled 0 ms)": ("device_gone", "cpu", "warning", "cpu2", None),
    "smpboot: Booting Node 0 Processor 3 APIC 0x6": ("device_back", "cpu", "info", "cpu3", None),
    "CPU1: Booted secondary processor 0x0000000001 [0x410fd0c0]": ("device_back", "cpu", "info", "cpu1", None),
    "Offlined Pages 32768": ("device_gone", "memory", "warning", "", None),
}
SILENT = (
    "",
    "eth0: renamed from veth1234567",
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "pcieport 0000:00:01.0: AER: enabled with IRQ 24",
    "nvme nvme0: pci function 0000:01:00.0",
    "nvme nvme0: 8/0/0 default/read/poll queues",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: (null). Quota mode: none.",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15",
    "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0",
    "bond0: (slave eth1): link status down for interface, disabling it in 200 ms",
    "IPv6: ADDRCONF(NETDEV_UP): eth0: link is not ready",
    "audit: type=1400 apparmor=DENIED operation=open process 3",
    "ata1: SATA link up 6.0 Gbps (SStatus 133 SControl 300)",
    "pcieport 0000:00:03.1: DPC: Link down",
    "oom_reaper: reaped process 7 (x), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "XFS (sda1): Unmounting Filesystem",
    "thermal thermal_zone0: failed to read out thermal zone (-61)",
)


@pytest.mark.parametrize("line", LINES)
def test_what_a_line_says(line: str) -> None:
    notice = only(line)
    assert (notice.kind, notice.subsystem, notice.severity, notice.instance, notice.code) == LINES[line]
    assert notice.message
    for secret in ("secret", "python", "a.out", "pid="):
        assert secret not in notice.message


@pytest.mark.parametrize("line", SILENT)
def test_what_says_nothing_of_hardware(line: str) -> None:
    assert read([line]) == []


def test_the_table_holds_known_words_alone() -> None:
    for pattern in PATTERNS:
        kinds = {"link_down", "link_up"} if pattern.kind == "link_" else {pattern.kind}
        assert kinds <= set(EVENT_KINDS)
        assert pattern.subsystem in SUBSYSTEMS
        assert pattern.severity in SEVERITIES


def test_the_text_behind_the_number_stays_and_the_process_goes() -> None:
    line = "NVRM: Xid (PCI:0000:97:00): 45, pid=1818987, name=python3, Ch 00000003 caused by previous Xid 145"
    assert only(line).message == "Xid 45 on 0000:97:00: Ch 00000003 caused by previous Xid 145"
    line = "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm secret: reading directory lblock 0"
    assert (
        only(line).message == "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: reading directory lblock 0"
    )


def test_a_gpu_has_the_name_that_telemetry_gives_it() -> None:
    events = KernelEvents(_name)
    [xid] = read(["NVRM: Xid (PCI:0000:cb:00): 48, pid=1, name=x, DBE"], events)
    assert (xid.instance, xid.code) == ("gpu3", 48)
    # A PCIe error of a GPU is one of the GPU, whichever driver has it.
    [pcie] = read(["vfio-pci 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer"], events)
    assert (pcie.instance, pcie.subsystem) == ("gpu0", "gpu")


def _name(pci: str) -> str:
    return {"0000:cb:00": "gpu3", "0000:41:00.0": "gpu0"}.get(pci, "")


FALLEN = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "               NVRM: fallen off the bus and is not responding to commands.",
)


def test_a_gpu_that_fell_off_the_bus_without_a_number() -> None:
    [notice] = read(FALLEN)
    assert (notice.kind, notice.severity, notice.instance, notice.code) == ("xid", "critical", "0000:b3:00.0", 79)


@pytest.mark.parametrize(
    "more",
    [
        "NVRM: Xid (PCI:0000:b3:00): 79, pid=12345, GPU has fallen off the bus.",
        "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at 00000000:B3:00.0 has fallen off the bus",
    ],
)
def test_one_fall_is_told_once_whichever_line_comes_first(more: str) -> None:
    for lines in ((*FALLEN, more), (more, *FALLEN)):
        [notice] = read(lines)
        assert (notice.kind, notice.code) == ("xid", 79)
    events = KernelEvents()
    assert len(read(FALLEN, events)) == 1
    assert read([more], events, NOW + SAME_FALL_NS) == []
    assert len(read([more], events, NOW + SAME_FALL_NS + 1)) == 1
    # Another GPU's fall is another one.
    assert len(read([*FALLEN, more.replace("b3:", "b4:").replace("B3:", "B4:")])) == 2


def test_a_fall_without_an_address_is_that_of_the_gpu_told_of_next() -> None:
    events = KernelEvents()
    [notice] = read([FALLEN[-1]], events)
    assert (notice.instance, notice.code) == ("", 79)
    numbered = "NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus."
    assert read([numbered], events) == []
    assert len(read([numbered.replace("b3", "b4")], events)) == 1


OOM = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job,mems_allowed=0,oom_memcg=/job,task=secret,pid=1"
KILLED = "Out of memory: Killed process 1 (sec)ret) total-vm:12kB, anon-rss:3kB, file-rss:0kB, shmem-rss:0kB, UID:7"


def test_an_oom_kill_keeps_constraint_and_sizes_and_no_name() -> None:
    [notice] = read([OOM, f"Memory cgroup o{KILLED[1:]}"])
    assert (notice.kind, notice.subsystem, notice.severity) == ("oom_kill", "memory", "warning")
    assert notice.message == (
        "a memory cgroup is out of memory, a process was killed: constraint CONSTRAINT_MEMCG, "
        "total-vm:12kB, anon-rss:3kB, file-rss:0kB, shmem-rss:0kB"
    )
    [notice] = read([f"[12.5] {KILLED}"])
    assert notice.severity == "critical"
    assert notice.message.startswith("the machine is out of memory, a process was killed: total-vm:12kB")
    [notice] = read(["Out of memory: Kill process 2 (secret) score 900 or sacrifice child"])
    assert notice.message == "the machine is out of memory, a process was killed"


def test_an_oom_kill_whose_second_line_does_not_come_is_told_later() -> None:
    events = KernelEvents()
    assert read([OOM], events) == []
    assert events.overdue(NOW + CONTEXT_NS - 1) == []
    [notice] = events.overdue(NOW + CONTEXT_NS)
    assert (notice.kind, notice.time_ns) == ("oom_kill", NOW)
    assert "CONSTRAINT_MEMCG" in notice.message
    assert "secret" not in notice.message
    assert events.overdue(NOW + 2 * CONTEXT_NS) == []


@pytest.mark.parametrize(
    ("word", "severity"), [("corrected", "info"), ("recoverable", "warning"), ("fatal", "critical")]
)
def test_the_firmware_tells_over_several_lines(word: str, severity: str) -> None:
    lines = [
        "{2}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1",
        f"{{2}}[Hardware Error]: event severity: {word}",
        f"{{2}}[Hardware Error]:  Error 0, type: {word}",
        "{2}[Hardware Error]:   section_type: memory error",
    ]
    report, memory = read(lines)
    assert report.kind == "machine_check"
    assert (memory.kind, memory.subsystem, memory.severity) == ("memory_error", "memory", severity)
    assert read([lines[-1].replace("memory error", "PCIe error")])[0].kind == "pcie_error"


def test_unwanted_interfaces_are_left_out() -> None:
    events = KernelEvents(wanted=lambda dimension, instance: not instance.startswith("veth"))
    assert read(["IPv6: ADDRCONF(NETDEV_CHANGE): veth12ab: link becomes ready"], events) == []
    assert len(read(["IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready"], events)) == 1


HOSTILE = (
    "NVRM: Xid (PCI:" + "0:" * 500,
    "NVRM: Xid (PCI:0000:01:00): 9" + "9" * 900,
    "EXT4-fs error (device " + "a" * 900,
    "INFO: task " + " blocked " * 120,
    "[Hardware Error]: CPU " + "1" * 900,
    "nvme nvme0: I/O " + "timeou" * 150,
    "XFS (" + "(sda): " * 140,
    "Killed process 1 " + "total-vm:" * 100,
    "pid=" * 250 + " process ",
    "oom-kill:constraint=" + "A" * 900,
    "AER PCIe Bus Error: " + "x 0000:00:00.0: " * 60,
    "eth0: " * 150 + "Link",
    "CPU" + "CPU1 " * 190,
    "slave (slave " * 70 + "definitely",
    "{1}" * 300 + "[Hardware Error]: section_type: ",
    "\x00\x1b[2J" + "Link is Down" * 80,
)


@pytest.mark.parametrize("line", HOSTILE)
def test_no_line_costs_more_than_it_is_long(line: str) -> None:
    events = KernelEvents()
    began = time.process_time()
    for _ in range(20):
        events(line * 100, NOW)
    assert (time.process_time() - began) / 20 < 0.01
