"""`docs/metrics.md` from the schemas: `python -m schemas.document` prints it."""

from __future__ import annotations

from schemas.catalogue import SUBSYSTEMS, catalogue, subsystem_metrics

HEAD = """# Metrics

{count} metrics, by subsystem. This page is made from `schemas/avro/*.avsc` by `python -m schemas.document`; a test
compares them. A counter is published as its rate, so its unit ends in `/s`. Metrics marked with * are for people and
alerts: detectors do not look at them. `reveal agent --once` shows which of them a machine has, and why it lacks others.
"""


def document() -> str:
    """The page, in Markdown."""
    parts = [HEAD.format(count=len(catalogue()))]
    for subsystem in SUBSYSTEMS:
        metrics = subsystem_metrics(subsystem).values()
        parts.append(f"\n## {subsystem} ({len(metrics)})\n\n| metric | unit | kind | of each | source | reveals |")
        parts.append("|---|---|---|---|---|---|")
        for metric in sorted(metrics, key=lambda metric: metric.name):
            cells = (
                f"`{metric.name}`{'' if metric.scored else ' *'}",
                metric.unit,
                metric.kind,
                metric.dimension,
                metric.source,
                metric.doc.removeprefix("Reveals: "),
            )
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    parts.append(LEFT_OUT)
    return "\n".join(parts)


LEFT_OUT = """
## What is left out, and why

| metric of other agents | why Reveal has none |
|---|---|
| processes on a GPU (`nvmlDeviceGetComputeRunningProcesses`) | tells of the workload, which is the tenant's |
| XID as a number | an XID is an event, with a time and words: topic `reveal.events` |
"""

if __name__ == "__main__":
    print(document(), end="")
