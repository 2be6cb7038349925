"""Publishes the current schemas that differ from their newest version, after the compatibility check."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from schemas.catalogue import SUBSYSTEMS, schema_text
from schemas.codec import RESULT_SCHEMAS
from schemas.compatibility import problems
from schemas.versions import published


def main() -> int:
    """Write new versions; exit status 1 and nothing written when a change would break old readers or writers."""
    root = Path(__file__).parent
    pending: list[tuple[Path, str]] = []
    found: list[str] = []
    for name in (*SUBSYSTEMS, *RESULT_SCHEMAS):
        text, versions = schema_text(name), published(name)
        schema = json.loads(text)
        if versions and versions[-1] == schema:
            continue
        found += [f"{name}: {problem}" for old in versions for problem in problems(old, schema)]
        pending.append((root / name / f"{len(versions) + 1:04d}.avsc", text))
    if found:
        print("not published:", *dict.fromkeys(found), sep="\n  ")
        return 1
    for path, text in pending:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"published {path.parent.name} version {path.stem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
