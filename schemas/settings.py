"""Settings: one frozen class a service, filled from defaults, a TOML file and the environment, in this order.

Field `x` of the section `agent` is `x` under `[agent]` in the file and REVEAL_AGENT_X in the environment. A `Secret`
may also come from the file that REVEAL_AGENT_X_FILE names; it never shows in print. Whatever is wrong is a
`SettingsError` that says where, what, and what would be right.
"""

from __future__ import annotations

import tomllib
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

T = TypeVar("T", bound="Settings")


class SettingsError(ValueError):
    """A setting is missing, unknown or wrong; the message says which and what to do."""


class Secret(str):
    """A string that does not show itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "***" if self else "''"


@dataclass(frozen=True, slots=True)
class Settings:
    """Base of all settings classes. Subclasses name their SECTION and check their values in `check`."""

    SECTION: typing.ClassVar[str] = ""

    def check(self) -> None:
        """Raises SettingsError when values do not fit together."""

    def describe(self) -> str:
        """All values on one line, secrets hidden: what a service prints at its start."""
        return f"[{self.SECTION}] " + " ".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self))

    def require(self, *, positive: tuple[str, ...] = (), ports: tuple[str, ...] = ()) -> None:
        """Raises SettingsError unless the named fields are above zero, or are port numbers."""
        for name in positive:
            if not getattr(self, name) > 0:
                raise SettingsError(f"[{self.SECTION}] {name} must be above zero, not {getattr(self, name)}")
        for name in ports:
            if not 1 <= getattr(self, name) <= 65535:
                raise SettingsError(
                    f"[{self.SECTION}] {name} must be a port from 1 to 65535, not {getattr(self, name)}"
                )


@dataclass(frozen=True, slots=True)
class KafkaSettings(Settings):
    """How to reach Kafka."""

    SECTION = "kafka"
    bootstrap: str = "127.0.0.1:19092"
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: Secret = Secret("")
    ssl_ca_file: str = ""
    partitions: int = 4
    replication: int = -1

    def check(self) -> None:
        self.require(positive=("partitions",))
        known = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        if self.security_protocol not in known:
            raise SettingsError(
                f"[kafka] security_protocol must be one of {', '.join(known)}, not {self.security_protocol!r}"
            )
        if not self.bootstrap:
            raise SettingsError("[kafka] bootstrap is empty: give host:port[,host:port...]")

    def client(self) -> dict[str, str]:
        """Properties that every librdkafka client starts from."""
        client = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security_protocol.lower()}
        if self.sasl_mechanism:
            client |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.sasl_username,
                "sasl.password": str(self.sasl_password),
            }
        if self.ssl_ca_file:
            client["ssl.ca.location"] = self.ssl_ca_file
        return client


@dataclass(frozen=True, slots=True)
class ClickHouseSettings(Settings):
    """How to reach ClickHouse over HTTP. The local server also takes the password of its read-only user `reader`.

    cluster  name of a replicated cluster that has the tables on every node; empty for a single node
    """

    SECTION = "clickhouse"
    host: str = "127.0.0.1"
    port: int = 18123
    username: str = "default"
    password: Secret = Secret("")
    reader_password: Secret = Secret("")
    database: str = "reveal"
    secure: bool = False
    cluster: str = ""

    def check(self) -> None:
        self.require(ports=("port",))
        # It becomes part of the DDL, which takes no parameters.
        if not all(letter.isalnum() or letter in "_-.{}" for letter in self.cluster):
            raise SettingsError(
                f"[clickhouse] cluster must be a name of letters, digits, _, - and ., not {self.cluster!r}"
            )


VIRTUAL_INTERFACES: Final = tuple(
    f"!{name}"
    for name in (
        *("lo", "veth*", "docker*", "br-*", "virbr*", "vnet*", "tap*", "tun*", "cni*", "cali*", "cilium*", "lxc*"),
        *("flannel*", "kube-*", "nodelocaldns", "dummy*", "ifb*", "sit*", "gre*", "gretap*", "erspan*", "ip6tnl*"),
        *("ip6gre*", "ip6_vti*", "ip_vti*", "tunl*", "wg*", "vxlan*", "geneve*", "podman*", "ovs-*", "azv*", "weave*"),
    )
)
"""Names that container engines, bridges and tunnels give: their traffic is that of the real interfaces."""


@dataclass(frozen=True, slots=True)
class AgentSettings(Settings):
    """The agent on every host. An empty `host` is the machine's own name.

    procfs, sysfs, rootfs  where the host's /proc, /sys and / are, for an agent in a container
    kmsg, nvml             the kernel's log and NVIDIA's library; an empty `kmsg` reads none, an empty `nvml` is the
                           library that the system finds
    disable                names of collectors that stay off
    every                  time between readings by collector, such as "numa=5000", ms
    interfaces, disks, filesystems, gpus
                           which instances are read: shell patterns, "!" before one excludes, the first that matches
                           decides; what no pattern matches is read if the list only excludes
    queue_mb, spool, spool_mb
                           memory for messages on their way; directory (an empty one keeps nothing) and size of the
                           spool
    budget_pct, budget_mb  what the agent may take, % of one core over a minute and MB resident, before it leaves out
                           its dearest collectors; 0 is no limit
    realtime               whether sampling goes before all that share the processors fairly, where that is allowed
    adaptive, quiet_period_ms
                           whether a quiet host is sampled less often, and how often
    http_host, http_port   where /metrics, /healthz and /readyz are served; port 0 serves nothing
    """

    SECTION = "agent"
    host: str = ""
    period_ms: int = 100
    procfs: str = "/proc"
    sysfs: str = "/sys"
    rootfs: str = "/"
    kmsg: str = "/dev/kmsg"
    nvml: str = ""
    disable: tuple[str, ...] = ()
    every: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = VIRTUAL_INTERFACES
    disks: tuple[str, ...] = ()
    filesystems: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    queue_mb: int = 64
    spool: str = ".reveal/spool"
    spool_mb: int = 256
    budget_pct: float = 5.0
    budget_mb: int = 200
    realtime: bool = True
    adaptive: bool = False
    quiet_period_ms: int = 500
    http_host: str = "127.0.0.1"
    http_port: int = 19101

    def check(self) -> None:
        self.require(positive=("period_ms", "queue_mb", "spool_mb"))
        for name in ("budget_pct", "budget_mb"):
            if getattr(self, name) < 0:
                raise SettingsError(f"[agent] {name} must not be below zero")
        if not 0 <= self.http_port <= 65535:
            raise SettingsError(f"[agent] http_port must be a port, or 0 for none, not {self.http_port}")
        self.cadences()
        if self.adaptive and (1000 % self.period_ms or 1000 % self.quiet_period_ms):
            raise SettingsError("[agent] adaptive: period_ms and quiet_period_ms must divide 1000")
        if self.adaptive and self.quiet_period_ms < self.period_ms:
            raise SettingsError("[agent] quiet_period_ms must not be shorter than period_ms")
        if not 10 <= self.period_ms <= 1000 or (1000 % self.period_ms and self.period_ms not in (300, 600)):
            raise SettingsError(f"[agent] period_ms must divide 1000, or be 300 or 600, not {self.period_ms}")
        if "\0" in self.host:
            raise SettingsError("[agent] host must not hold a zero byte")

    def cadences(self) -> dict[str, int]:
        """`every` by collector, ms."""
        found: dict[str, int] = {}
        for item in self.every:
            name, _, text = item.partition("=")
            if not text.isdecimal() or not 0 < int(text) <= 60_000:
                raise SettingsError(f"[agent] every: {item!r} is no collector=milliseconds, from 1 to 60000")
            found[name.strip()] = int(text)
        return found


@dataclass(frozen=True, slots=True)
class PipelineSettings(Settings):
    """The detection pipeline; the same for workers and backtests. Times in seconds, counted in windows of one step."""

    SECTION = "pipeline"
    window_s: int = 3
    step_s: int = 1
    grace_s: float = 3.0
    future_s: float = 300.0
    silence_s: float = 60.0
    coverage: float = 0.6
    warmup_windows: int = 120
    rows: int = 128
    row_every: int = 5
    refit_windows: int = 600
    adopt_windows: int = 5
    correlation: float = 0.5
    threshold_percentile: float = 99.0
    open_severity: float = 4.0
    open_windows: int = 2
    close_severity: float = 3.5
    close_windows: int = 5
    reopen_s: float = 15.0
    regime_windows: int = 900
    phase_times: int = 2
    forget_s: float = 86_400.0
    seed: int = 0

    def check(self) -> None:
        self.require(
            positive=(
                "window_s",
                "step_s",
                "grace_s",
                "warmup_windows",
                "rows",
                "row_every",
                "refit_windows",
                "adopt_windows",
                "open_windows",
                "close_windows",
                "regime_windows",
                "phase_times",
                "forget_s",
            )
        )
        if self.step_s > self.window_s:
            raise SettingsError(
                "[pipeline] step_s is longer than window_s: samples between windows would never be looked at"
            )
        if not 0 < self.coverage <= 1:
            raise SettingsError(f"[pipeline] coverage must be above 0 and at most 1, not {self.coverage}")
        if not 0 < self.correlation <= 1:
            raise SettingsError(f"[pipeline] correlation must be above 0 and at most 1, not {self.correlation}")
        if not 50 <= self.threshold_percentile < 100:
            raise SettingsError("[pipeline] threshold_percentile must be from 50 to below 100")
        if self.warmup_windows < 30:
            raise SettingsError(
                "[pipeline] warmup_windows must be at least 30: fewer say nothing about a 99th percentile"
            )
        if self.rows < self.warmup_windows:
            raise SettingsError("[pipeline] rows must be at least warmup_windows: the baseline learns from them all")


@dataclass(frozen=True, slots=True)
class WorkerSettings(Settings):
    """A stream worker. `instance` names it among the workers of the group; `directory` is its own."""

    SECTION = "worker"
    group: str = "reveal-worker"
    instance: str = "worker-1"
    directory: str = ".reveal/worker"
    batch: int = 500
    batch_within_s: float = 0.05

    def check(self) -> None:
        self.require(positive=("batch", "batch_within_s"))


@dataclass(frozen=True, slots=True)
class WarehouseSettings(Settings):
    """The ClickHouse sink.

    listen          host:port of its /metrics and /healthz; empty serves nothing
    *_days          how long rows are kept, counted from when they were stored: telemetry a second, a minute and an
                    hour, every sample of the minutes around episodes, verdicts, episodes and what is of them, events,
                    dead letters
    rollup_s        time between two looks for minutes to sum up; hours are summed up every tenth time
    samples_before_s, samples_after_s, samples_most_s
                    of which time before and after an episode every sample is kept, and how long at most; 0 at most
                    keeps none
    """

    SECTION = "warehouse"
    group: str = "reveal-warehouse"
    instance: str = "warehouse-1"
    listen: str = "127.0.0.1:19102"
    batch_rows: int = 50_000
    batch_s: float = 0.25
    telemetry_days: int = 7
    minute_days: int = 30
    hour_days: int = 400
    sample_days: int = 90
    verdict_days: int = 30
    episode_days: int = 365
    event_days: int = 90
    dead_letter_days: int = 30
    rollup_s: float = 60.0
    samples_before_s: int = 60
    samples_after_s: int = 60
    samples_most_s: int = 900

    def check(self) -> None:
        days = tuple(item.name for item in fields(self) if item.name.endswith("_days"))
        self.require(positive=("batch_rows", "batch_s", "rollup_s", *days))
        for name in ("samples_before_s", "samples_after_s", "samples_most_s"):
            if getattr(self, name) < 0:
                raise SettingsError(f"[warehouse] {name} must not be below zero")
        self.address()

    def address(self) -> tuple[str, int] | None:
        """Where to listen, None for nowhere. Raises SettingsError."""
        if not self.listen:
            return None
        host, colon, port = self.listen.rpartition(":")
        if not colon or not host or not port.isdecimal() or not int(port) <= 65535:
            raise SettingsError(f"[warehouse] listen must be host:port, or empty for none, not {self.listen!r}")
        return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True)
class AlertsSettings(Settings):
    """The alert fan-out. Of the instances of one `group` one works; each has an `instance` name of its own.

    routing         file with receivers and routes; an empty one tells the log only
    http_host, http_port
                    where /metrics, /healthz and /feedback are served; port 0 serves nothing
    feedback_secret, feedback_url
                    signs the feedback links in alerts, and the URL at which people reach this page; without a secret
                    there are no links and no page
    expected_days   for how long a kind of episode that somebody says is expected is not told again
    """

    SECTION = "alerts"
    group: str = "reveal-alerts"
    instance: str = "alerts-1"
    routing: str = ""
    http_host: str = "127.0.0.1"
    http_port: int = 19103
    feedback_secret: Secret = Secret("")
    feedback_url: str = ""
    expected_days: float = 7.0

    def check(self) -> None:
        self.require(positive=("expected_days",))
        if not 0 <= self.http_port <= 65535:
            raise SettingsError(f"[alerts] http_port must be a port, or 0 for none, not {self.http_port}")
        if self.feedback_secret and len(self.feedback_secret) < 16:
            raise SettingsError("[alerts] feedback_secret must have at least 16 characters")
        if self.feedback_url and not self.feedback_url.startswith(("http://", "https://")):
            raise SettingsError("[alerts] feedback_url must begin with https:// or http://")


@dataclass(frozen=True, slots=True)
class StackSettings(Settings):
    """The one-machine stack. An empty `cache` is the user's cache folder."""

    SECTION = "stack"
    directory: str = ".reveal"
    cache: str = ""
    kafka_port: int = 19092
    kafka_controller_port: int = 19093
    clickhouse_port: int = 18123
    kafka_heap_mb: int = 256

    def check(self) -> None:
        self.require(
            positive=("kafka_heap_mb",),
            ports=("kafka_port", "kafka_controller_port", "clickhouse_port"),
        )


SECTIONS: Mapping[str, type[Settings]] = {
    kind.SECTION: kind
    for kind in (
        KafkaSettings,
        ClickHouseSettings,
        AgentSettings,
        PipelineSettings,
        WorkerSettings,
        WarehouseSettings,
        AlertsSettings,
        StackSettings,
    )
}


def read_file(path: Path | None) -> Mapping[str, Any]:
    """Content of a TOML settings file; nothing for None. Raises SettingsError for what is not there, not TOML or not
    a known section.
    """
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    for section in content:
        if section not in SECTIONS:
            raise SettingsError(f"{path}: unknown section [{section}]; known are {', '.join(SECTIONS)}")
    return content


def user_cache(environ: Mapping[str, str]) -> Path:
    """Reveal's part of the user's cache. Raises RuntimeError for a user without a home."""
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "reveal"


def load(kind: type[T], environ: Mapping[str, str], file: Mapping[str, Any] | None = None) -> T:
    """Settings of one service: environment over file over defaults.

    Raises SettingsError for an unknown key in the service's section or environment, a value of the wrong type, or
    values that do not fit together.
    """
    section = dict((file or {}).get(kind.SECTION, {}))
    prefix = f"REVEAL_{kind.SECTION.upper()}_"
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    known: set[str] = set()
    for item in fields(kind):
        variable = prefix + item.name.upper()
        known |= {variable}
        if item.name in section:
            values[item.name] = _typed(section.pop(item.name), hints[item.name], f"[{kind.SECTION}] {item.name}")
        if variable in environ:
            values[item.name] = _parsed(environ[variable], hints[item.name], variable)
        if hints[item.name] is Secret:
            known |= {f"{variable}_FILE"}
            if f"{variable}_FILE" in environ:
                values[item.name] = _secret(Path(environ[f"{variable}_FILE"]), f"{variable}_FILE")
        if item.name not in values and item.default is MISSING and item.default_factory is MISSING:
            raise SettingsError(f"[{kind.SECTION}] {item.name} is not set: give it in the file or as {variable}")
    if section:
        raise SettingsError(f"[{kind.SECTION}] has no setting {', '.join(sorted(section))}; it has {', '.join(hints)}")
    if strange := sorted(name for name in environ if name.startswith(prefix) and name not in known):
        raise SettingsError(f"{', '.join(strange)}: no such setting; [{kind.SECTION}] has {', '.join(sorted(known))}")
    settings = kind(**values)
    settings.check()
    return settings


def _secret(path: Path, where: str) -> Secret:
    try:
        return Secret(path.read_text(encoding="utf-8").rstrip("\n"))
    except OSError as error:
        raise SettingsError(f"{where}: cannot read {path}: {error.strerror}") from None


def _parsed(text: str, hint: Any, where: str) -> Any:
    """Value of an environment variable; a tuple is comma-separated."""
    if typing.get_origin(hint) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if hint is bool:
        words = {
            "1": True,
            "true": True,
            "yes": True,
            "on": True,
            "0": False,
            "false": False,
            "no": False,
            "off": False,
        }
        if text.lower() not in words:
            raise SettingsError(f"{where} must be true or false, not {text!r}")
        return words[text.lower()]
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            raise SettingsError(f"{where} must be a number, not {text!r}") from None
    return hint(text)


def _typed(value: Any, hint: Any, where: str) -> Any:
    """Value of a TOML key, checked."""
    if typing.get_origin(hint) is tuple and isinstance(value, list) and all(isinstance(part, str) for part in value):
        return tuple(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Secret and isinstance(value, str):
        return Secret(value)
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    name = getattr(hint, "__name__", str(hint))
    raise SettingsError(f"{where} must be of type {name}, not {value!r}")
