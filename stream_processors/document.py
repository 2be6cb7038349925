"""`docs/causes.md` from `causes.toml`: `python -m stream_processors.document` prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stream_processors.causes import ENOUGH, NAMED, Cause, causes
from stream_processors.episodes import SETTLED
from stream_processors.signs import LOUD, QUIET, Sign

HEAD = """# Probable causes

{count} causes. This page is made from `stream_processors/causes.toml` by `python -m stream_processors.document`; a
test compares them.

Each window of an open episode is compared with every cause. A sign counts from {quiet:g} robust standard deviations
on and fully from {loud:g}. All that a cause requires must show; what supports it makes it more certain, up to when
{enough:.0%} of the weight of its supporting signs shows; what speaks against it makes it less. What the host does not
measure counts neither way. The confidence of an episode is the mean over its windows, in which severe windows weigh
more, and old ones slowly less. From {named:.0%} on a cause is named; below, the cause is unknown, and the episode says
what was strange all the same. Symptoms are named only where no other cause is. After {settled} windows an episode keeps
its cause until another one has held for more of it, and never changes it for a symptom: what a fault does when it ends
does not rename it. A named cause also gives the episode its subsystem; the shares of the subsystems stay as measured.

`candidates` of an episode has all causes that fit, with their confidence: the second one is worth a look where the
first is not certain.

```
reveal sql "SELECT host, start, subsystem, cause, confidence FROM anomalies WHERE cause != '' ORDER BY start DESC"
reveal sql "SELECT arrayJoin(checks) FROM anomalies WHERE id = {{id:String}}" --param id=0123456789abcdef
```

## To add one

A section in `causes.toml`: `title`, `subsystem` (or a list, of which the first that the host has counts), `requires`,
`supports`, `excludes`, `explanation`, `checks`, `remedy`; `alone` is the confidence when nothing supports it (0.6
unless said), `fallback = true` marks a symptom. Signs are sentences:

| sentence | holds when |
|---|---|
| `tcp.fast_retrans rises` | the metric, or an instance, does; also `falls`, `moves`, `swings`, `steady` |
| `ib.symbol_error or ib.rx_errors rises` | any of them does; the strongest counts |
| `gpu.clock_sm falls on one` | few of its instances do: a quarter at most, or one; `on many`: more than half |
| `vm.pgfault multiplies` | it rises to many times what is usual; `vanishes`: falls to a small part of it |
| `net.tx_bytes vanishes on one` | so does one instance, whatever is left of the others |
| `cpu.irq.nic spreads` | its instances drift apart |
| `gpu.temp_margin below 3` | its lowest instance (`above`: its highest) has such a value |
| `tcp.timeouts exceeds 1` | it is by so much more than usual, in its unit, however much it varies |
| `tcp.syn_retrans per tcp.retrans_segs above 0.4` | such a share of the second's excess is of the first |
| `event xid 63 64` | the host told of one, from 30 s before the episode on, with one of these codes if any |
| `2 * ib.tx_wait rises` | weighs twice; among `excludes`, `0.5 *` takes half of the confidence |

Figures in `explanation` are names of metrics in braces; a sentence whose metric is not in evidence is left out. In
`checks`, `{{instance}}` is the strangest instance. A name that does not exist is an error that names the line. Then:
what distinguishes it from its neighbours goes to `excludes` on both sides, and a case to
`tests/simulated/test_case_studies.py`.
"""


def page() -> str:
    """The page, in Markdown."""
    head = HEAD.format(count=len(causes()), quiet=QUIET, loud=LOUD, enough=ENOUGH, named=NAMED, settled=SETTLED)
    return "\n".join([head, *(line for cause in causes().values() for line in _section(cause))])


def _section(cause: Cause) -> Iterator[str]:
    yield f"## {cause.name}\n"
    where = " or ".join(cause.subsystems)
    yield f"{cause.title[0].upper()}{cause.title[1:]}. Subsystem: {where}.{' A symptom.' if cause.fallback else ''}\n"
    yield f"- Signs: {_told(cause.requires, ' and ')}"
    if cause.supports:
        yield f"- Supported by: {_told(cause.supports, ', ')}"
    if cause.excludes:
        yield f"- Less likely with: {_told(cause.excludes, ', ')}"
    yield "- Says: " + re.sub(r"{([a-z0-9_.]+)}", r"*\1*", " ".join(cause.explanation))
    yield f"- Remedy: {cause.remedy}\n"
    yield "\n".join(["```", *cause.checks, "```\n"])


def _told(signs: tuple[Sign, ...], between: str) -> str:
    return between.join(f"`{sign.text}`" for sign in signs)


if __name__ == "__main__":
    print(page(), end="")
