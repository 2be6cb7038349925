"""Messages in: the Faust application, and batches of its events.

Left to itself, Faust spends more on a message than we do to decode it: four tasks wait for its delivery beside the flow
being stopped, serializers are looked up that change nothing, and a stream takes it through processors and sensors that
nobody uses. So what can be delivered at once is, keys and values are taken as they come, and batches are taken from the
buffer that the stream would read. What zstd packed is unpacked by one decompressor, where aiokafka makes one for each
batch, which is one for each message of an agent, and needs more time to make it than to use it.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import faust
import zstandard
from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatch
from faust.transport.drivers import aiokafka
from faust.transport.producer import ProducerBuffer
from faust.types import TP
from mode.supervisors import CrashingSupervisor

from schemas.settings import KafkaSettings, WorkerSettings

DELIVERY: Final = 2
FETCH_MS: Final = 100
FETCH_BYTES: Final = 256 << 10
"""A fetch is answered when so much has come, or after so long: many small ones take more time than what they bring."""

BEGINS_WITHIN_S: Final = 10.0


class Plain(faust.Schema[Any, Any]):
    """Keys and values as bytes, as they come."""

    def compile(self, app: Any, **_: Any) -> Any:
        """What makes an event of a message."""

        async def decode(message: Any, *, propagate: bool = False) -> Any:
            return faust.Event(app, message.key, message.value, message.headers, message)

        return decode


class Unpacking(threading.local):
    """Unpacks zstd with a decompressor that is kept, one in each thread."""

    def __init__(self) -> None:
        self._kept = zstandard.ZstdDecompressor()

    def __call__(self, packed: bytes | memoryview) -> bytes:
        """What `packed`, one frame of any size, holds. Raises ValueError or ZstdError if it is damaged."""
        frame = self._kept.decompressobj()
        data = frame.decompress(packed)
        if not frame.eof:
            raise ValueError(f"a zstd frame of {len(packed)} bytes has no end")
        return data


# By this name aiokafka calls it, in the compiled module or in the one that stands in where that was not built.
vars(sys.modules[DefaultRecordBatch.__module__])["zstd_decode"] = Unpacking()


class PromptThread(aiokafka.AIOKafkaConsumerThread):
    """Faust's consumer thread, with fetches of its own size: settings of aiokafka that Faust fixes.

    One fetch at a time is under way to a broker. Partitions of which something waits to be read are left out, and Faust
    would wait 1.5 s for the others to have a first message: so long nothing else would come where only those are left
    that seldom have any, as in a backlog.
    """

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_min_bytes, consumer._fetch_max_wait_ms = FETCH_BYTES, FETCH_MS
        return consumer


class PromptConsumer(aiokafka.Consumer):
    """Faust's consumer, without tasks for what need not be waited for."""

    def _new_consumer_thread(self) -> PromptThread:
        return PromptThread(self, loop=self.loop, beacon=self.beacon)

    async def wait_first(self, *waits: Any, timeout: Any = None) -> Any:  # noqa: ASYNC109 - as in mode
        """Wait for the first of `waits`, which are two for each message: its delivery, which itself waits only while
        the flow is stopped or the buffer is full, and the flow being stopped.
        """
        flows = self.app.flow_control.is_active() and not self.suspend_flow.is_set()
        if len(waits) == DELIVERY and flows and not any(topic.queue.full() for topic in self.app.topics):
            delivery, stopped = waits
            stopped.close()
            return await delivery
        return await super().wait_first(*waits, timeout=timeout)

    def on_buffer_full(self, tp: Any) -> None:
        """Keep the partition: a full buffer holds up the next delivery, and goes on as soon as there is room. Faust
        would look again after a second.
        """

    async def begins(self, topics: Iterable[str], partition: int) -> Mapping[str, int]:
        """Offsets by topic from which a partition that was just assigned is read. Raises ConnectionError if Kafka does
        not say so.
        """
        places = [TP(topic, partition) for topic in topics]
        try:
            earliest = await asyncio.wait_for(self.earliest_offsets(*places), BEGINS_WITHIN_S)
        except (KafkaError, TimeoutError) as error:
            raise ConnectionError(f"where its topics begin is not known: {error!r}") from error
        return {place.topic: max(self._committed_offset[place] or 0, earliest[place]) for place in places}

    def ends(self, topics: Iterable[str], partition: int) -> Mapping[str, int | None]:
        """Offsets by topic of the next message of a partition, as of the last fetch; None where that is not known."""
        return {topic: self._end(TP(topic, partition)) for topic in topics}

    def _end(self, place: TP) -> int | None:
        try:
            return self.highwater(place)
        except AssertionError:  # it is not assigned any more
            return None


class EmptyBuffer(ProducerBuffer):
    """What Faust has to send, which is nothing: results go another way."""

    async def wait_until_ebb(self) -> None:
        """Wait for nothing. Faust asks before each message, and looks up settings to find out."""


class IdleProducer(aiokafka.Producer):
    """Faust's producer, with that buffer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.buffer = EmptyBuffer(loop=self.loop, beacon=self.beacon)
        self.buffer.app = self.app


class Transport(aiokafka.Transport):
    """Faust's transport with that consumer and that producer."""

    Consumer: ClassVar[type[PromptConsumer]] = PromptConsumer
    Producer: ClassVar[type[IdleProducer]] = IdleProducer


async def batches(stream: Any, most: int, within_s: float) -> AsyncIterator[list[Any]]:
    """Events of `stream`, as many as come within `within_s` of the first, `most` at most. To acknowledge them is left
    to who takes them.
    """
    queue = stream.channel.queue
    heard = stream.app.monitor.stream_inbound_time
    while True:
        events = [await queue.get()]
        if queue.qsize() + len(events) < most:
            await asyncio.sleep(within_s)
        while len(events) < most and not queue.empty():
            events.append(queue.get_nowait())
        # By this Faust finds partitions that are not worked on.
        heard |= dict.fromkeys((event.message.tp for event in events), time.monotonic())
        yield events


def application(kafka: KafkaSettings, worker: WorkerSettings) -> faust.App:
    """The Faust application of a worker."""
    app = faust.App(
        worker.group,
        broker=[f"kafka://{address}" for address in kafka.bootstrap.split(",")],
        broker_credentials=_credentials(kafka),
        broker_session_timeout=10.0,
        broker_heartbeat_interval=1.0,
        broker_request_timeout=90.0,
        broker_commit_interval=1.0,
        consumer_auto_offset_reset="earliest",
        # Small fetches keep the topics of a host close together when there is a backlog.
        consumer_max_fetch_size=64 << 10,
        consumer_group_instance_id=worker.instance,
        datadir=str(Path(worker.directory)),
        key_serializer="raw",
        value_serializer="raw",
        store="memory://",
        stream_wait_empty=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        topic_partitions=kafka.partitions,
        processing_guarantee="at_least_once",
        web_enabled=False,
        agent_supervisor=CrashingSupervisor,
    )
    app.transport = Transport(app.conf.broker_consumer, app)
    return app


def _credentials(kafka: KafkaSettings) -> Any:
    context = (
        ssl.create_default_context(cafile=kafka.ssl_ca_file or None)
        if "SSL" in kafka.security_protocol.split("_")
        else None
    )
    if kafka.security_protocol.startswith("SASL"):
        return faust.SASLCredentials(
            username=kafka.sasl_username,
            password=str(kafka.sasl_password),
            mechanism=kafka.sasl_mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context=context) if context else None
