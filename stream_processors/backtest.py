"""The pipeline over a recording: what the workers would have said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from schemas.codec import Rejected
from schemas.records import DeadLetter, Telemetry
from schemas.settings import PipelineSettings
from schemas.topics import TELEMETRY
from stream_processors.host import Result
from stream_processors.pipeline import Pipeline
from stream_processors.seconds import SECOND_NS


def backtest(
    batches: Iterable[Telemetry], settings: PipelineSettings, counts: Counter[str] | None = None
) -> Iterator[Result | DeadLetter]:
    """Results over `batches` in order of time; what the pipeline rejects comes as dead letters. `counts` is filled in
    as it goes. Windows that the end of the recording cuts off are not judged.
    """
    pipeline = Pipeline(settings, counts=Counter() if counts is None else counts)
    for offset, batch in enumerate(batches):
        arrived = (batch.start_ns + batch.count * batch.period_ms * 1_000_000) / SECOND_NS
        try:
            yield from pipeline.feed(batch, arrived)
        except Rejected as error:
            topic = TELEMETRY[batch.subsystem]
            yield DeadLetter(topic, 0, offset, "backtest", error.reason, error.detail, batch.host.encode())
