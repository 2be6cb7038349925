"""What people say of alerts, and signed links by which they can."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from schemas.records import Feedback
from sinks.alerts.duration import SECOND_NS
from sinks.alerts.held import Held, short_id
from sinks.alerts.silences import Expected

VERDICTS: Final = ("true", "false", "expected")
MEANINGS: Final = {
    "true": "a real problem",
    "false": "a false alarm",
    "expected": "expected, and not to be told again for a while",
}
LINK_S: Final = 7 * 86_400


def judge(
    alert: Held, verdict: str, *, until_ns: int | None, by: str, note: str, now_ns: int
) -> tuple[Feedback, Expected | None]:
    """The feedback, and of `expected` what keeps the same kind of episode quiet on that host until `until_ns`.

    Raises ValueError for a verdict that is none, or `expected` of a group, which is no kind of episode on a host.
    """
    if verdict not in VERDICTS:
        raise ValueError(f"the verdict must be one of {', '.join(VERDICTS)}, not {verdict!r}")
    if verdict == "expected" and not alert.host:
        raise ValueError("a group is not expected: say so of its hosts, or silence it")
    kind = hashlib.sha256(f"{alert.host}\0{alert.subsystem}\0{alert.cause or ''}".encode()).hexdigest()[:12]
    made = Feedback(
        id=hashlib.sha256(f"{alert.key}\0{verdict}\0{by}\0{now_ns}".encode()).hexdigest()[:20],
        time_ns=now_ns,
        alert=alert.key,
        verdict=verdict,
        host=alert.host,
        subsystem=alert.subsystem,
        cause=alert.cause,
        episode=next(reversed(alert.episodes), ""),
        until_ns=until_ns if verdict == "expected" else None,
        by=by,
        note=note,
    )
    if verdict != "expected" or until_ns is None:
        return made, None
    return made, Expected(kind, alert.host, alert.subsystem, alert.cause, until_ns, by, note)


@dataclass(frozen=True, slots=True)
class Links:
    """Signed links to the feedback page at `url`. Without a secret there are none."""

    secret: str
    url: str

    def of(self, key: str, now_ns: int) -> Mapping[str, str]:
        """A link a verdict, good for a week; to the hour, so that the same alert has the same ones for a while."""
        if not self.secret or not self.url:
            return {}
        expires = (now_ns // SECOND_NS // 3600 + 1) * 3600 + LINK_S
        return {f"feedback_{verdict}": self.link(key, verdict, expires) for verdict in VERDICTS}

    def link(self, key: str, verdict: str, expires: int) -> str:
        """The link; `expires` in s since 1970-01-01 UTC."""
        values = {"alert": key, "verdict": verdict, "expires": str(expires)}
        return f"{self.url.rstrip('/')}/feedback?{urlencode({**values, 'sig': self._sign(values)})}"

    def check(self, values: Mapping[str, str], now_ns: int) -> str:
        """Why the query `values` of a link is not good; empty when it is."""
        try:
            expires = int(values.get("expires", ""))
        except ValueError:
            return "this is no link of Reveal's"
        signed = {name: values.get(name, "") for name in ("alert", "verdict", "expires")}
        given = values.get("sig", "")
        if not self.secret or not hmac.compare_digest(self._sign(signed).encode(), given.encode()):
            return "this link was not made here, or was changed"
        if now_ns // SECOND_NS >= expires:
            return f"this link has expired; say it with: reveal alerts feedback {short_id(signed['alert'])} ..."
        return ""

    def _sign(self, values: Mapping[str, str]) -> str:
        text = "\0".join(f"{name}={values[name]}" for name in sorted(values))
        return hmac.new(self.secret.encode(), text.encode(), hashlib.sha256).hexdigest()
