"""What the tests of the pipeline share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemas.settings import PipelineSettings
from stream_processors.baseline import Baseline
from stream_processors.rows import Row, feature_matrix


@pytest.fixture(scope="module")
def quick_fits() -> Iterator[None]:
    """The same rows are fitted once: tests that crash at many points would learn the same again and again."""
    known: dict[object, Baseline] = {}
    fit = Baseline.fit

    def remembered(rows: list[Row], version: int, settings: PipelineSettings) -> Baseline:
        levels = tuple((*place, values.tobytes()) for row in rows for place, values in row.levels.items())
        names = tuple(names for row in rows for names in row.instances.values())
        key = (feature_matrix(rows).tobytes(), levels, names, version, settings)
        if key not in known:
            known[key] = fit(rows, version, settings)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Baseline, "fit", remembered)
        yield
