"""The thread between the sampling loop and Kafka: sends, and takes to disk what is not acknowledged soon.

As long as all goes well messages only pass through memory. Once one waits for its acknowledgement for DOUBT_S, or the
client says that no broker is there, delivery is in doubt: everything that is out and not acknowledged is written to the
spool, in order, and so is all that comes, until the spool has been handed out to its end and acknowledgements come
again. What is out stays out, since the client keeps it in order until a broker takes it; the copy on disk is for the
case that this process dies. Few messages are out at a time, whatever lies on disk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from producers.backfill import Backfill
from producers.inbox import Inbox
from producers.lane import LONGEST_BACKOFF_S, Lane, Out
from producers.ledger import Ledger
from producers.segment import Stored
from producers.segment_file import Segment
from producers.sending import Client, Outcome, Verdict
from producers.spool import Spool, SpoolError

log = logging.getLogger(__name__)

DOUBT_S: Final = 2.0
"""An acknowledgement usually takes some 10 ms."""
TURN_S: Final = 0.25
"""A new message waits no longer for those that are out."""
IDLE_S: Final = 1.0
"""So often the thread looks for acknowledgements when none can be expected."""
STUMBLE_S: Final = 1.0
MOST_OUT: Final = 1000
MOST_OUT_BYTES: Final = 4 << 20
DISK_RETRY_S: Final = 10.0
PATIENCE_S: Final = 600.0
"""A topic may be made, or an authorisation given, so long after its first message."""
REPEAT_S: Final = 60.0
"""What may be true many times a minute is said once."""


class Delivery:
    """Delivers what comes into an inbox, in a thread of its own from `start` to `stop`.

    open_spool  opens the spool, raising SpoolError while there is none to be had; None if there is to be none
    patience_s  how long a topic may be missing or forbidden before its messages are set aside
    clock       monotonic, s
    wall        ns since 1970
    """

    def __init__(
        self,
        client: Client,
        inbox: Inbox,
        ledger: Ledger,
        open_spool: Callable[[], Spool] | None = None,
        *,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._client = client
        self._inbox = inbox
        self._ledger = ledger
        self._open_spool = open_spool
        self._patience_s = patience_s
        self._clock = clock
        self._wall = wall
        self._spool: Spool | None = None
        self._disk_at = float("-inf")
        self._disk_trouble = ""
        self._out: dict[int, Out] = {}
        self._out_bytes = 0
        self._lanes: dict[str, Lane] = {}
        self._token = 0
        self._acknowledged_at = float("-inf")
        self._renew_at = 0.0
        self._renew_s = 1.0
        self._doubting = False
        self._doubt_say_at = float("-inf")
        self._backfill = Backfill()
        self._refused_say_at = float("-inf")
        self._stop_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Deliver for at most `seconds` more, put what is left into the spool, and end. Returns when it is done, or
        when a disk does not answer for some seconds more.
        """
        self._stop_at = self._clock() + seconds
        self._inbox.wake()
        self._thread.join(seconds + 5)

    def waiting(self) -> int:
        """Messages that are not delivered yet: new, out, or on disk."""
        spool = self._spool
        return len(self._inbox) + len(self._out) + (spool.unread if spool else 0)

    def on_disk(self) -> int:
        """Messages in the spool that are not known to be delivered."""
        spool = self._spool
        return spool.messages if spool else 0

    def in_memory(self) -> int:
        """Messages that only this process has."""
        out = list(self._out.values())
        return len(self._inbox) + sum(each.segment is None or each.segment.gone for each in out)

    def turn(self) -> None:
        """One round of everything, waiting a moment for something to happen."""
        now = self._clock()
        self._use_disk(now)
        doubt = self._in_doubt(now)
        if doubt is not self._doubting:
            self._doubting = doubt
            if doubt and now >= self._doubt_say_at:
                self._doubt_say_at = now + REPEAT_S
                where = "go to the spool" if self._spool is not None and not self._disk_trouble else "wait in memory"
                log.warning("Kafka leaves messages unacknowledged: messages %s", where)
        if doubt:
            self._secure(now)
        self._take(now, doubt)
        self._retry(now)
        self._fill(now)
        if not doubt and self._spool is not None and not self._spool.unread:
            self._spool.rest()
        self._report(now)
        self._wait(now, doubt)
        if self._client.broken:
            self._renew(self._clock())

    def _run(self) -> None:
        while not self._finished():
            try:
                self.turn()
            except Exception:
                # Nothing else would deliver: whatever went wrong, go on.
                log.exception("delivery stumbled")
                time.sleep(STUMBLE_S)
        self._leave()

    def _finished(self) -> bool:
        if self._stop_at is None:
            return False
        if self._clock() >= self._stop_at or not self.waiting():
            return True
        # What is on disk is in good hands: the next start delivers it.
        return self._spool is not None and not self._disk_trouble and (self._client.away or self._spool.messages > 0)

    def _leave(self) -> None:
        """Into the spool with all that is not delivered."""
        self._client.close()
        for outcome in self._client.poll(0):
            if outcome.verdict is Verdict.DELIVERED:
                self._settle(outcome)
        now = self._clock()
        self._disk_at = float("-inf")
        self._use_disk(now)
        if self._spool is None:
            return
        unstored = [out for out in self._out.values() if out.segment is None]
        for message in [out.message for out in unstored] + self._inbox.take_all():
            try:
                if self._store(message, now, handed=False) is None:
                    self._inbox.give_back(message)
            except ValueError as error:
                self._ledger.lose(message.subsystem, 1, message.samples, str(error))

        for out in unstored:
            self._out.pop(out.token)
        self._spool.close()
        self._ledger.spooled(self._spool.messages)

    def _use_disk(self, now: float) -> None:
        if self._open_spool is None or self._spool is not None or now < self._disk_at:
            return
        try:
            self._spool = self._open_spool()
        except SpoolError as error:
            self._disk_failed(str(error), now)
            return
        self._disk_works()

    def _disk_failed(self, reason: str, now: float) -> None:
        self._disk_at = now + DISK_RETRY_S
        if reason != self._disk_trouble:
            log.error("no spool, messages are kept in memory alone: %s", reason)
        self._disk_trouble = reason

    def _disk_works(self) -> None:
        if self._disk_trouble:
            log.info("the spool can be used again")
        self._disk_trouble = ""

    def _in_doubt(self, now: float) -> bool:
        if self._client.away:
            return True
        oldest = next(iter(self._out.values()), None)
        return oldest is not None and now - oldest.since > DOUBT_S

    def _store(self, message: Stored, now: float, *, handed: bool) -> Segment | None:
        """Append to the spool; None when that cannot be done now. Raises ValueError when it never can."""
        if self._spool is None or now < self._disk_at:
            return None
        try:
            segment = self._spool.append(message, handed=handed)
        except OSError as error:
            self._disk_failed(f"{error.strerror}: {self._spool.directory}", now)
            return None
        self._disk_works()
        return segment

    def _secure(self, now: float) -> None:
        """What is out and only in memory goes to disk, too. It came after all that is on disk."""
        if self._spool is None or self._spool.unread:
            return
        for out in self._out.values():
            if out.segment is not None:
                continue
            try:
                out.segment = self._store(out.message, now, handed=True)
            except ValueError:
                # Larger than the spool: it stays in memory.
                continue
            if out.segment is None:
                return

    def _take(self, now: float, doubt: bool) -> None:
        """What is new goes to disk if anything before it is there or in doubt, and out otherwise."""
        while (message := self._inbox.take()) is not None:
            unread = self._spool is not None and self._spool.unread > 0
            if doubt or unread:
                try:
                    if self._store(message, now, handed=False) is not None:
                        continue
                except ValueError as error:
                    self._ledger.lose(message.subsystem, 1, message.samples, str(error))
                    continue
            if unread or self._full():
                self._inbox.give_back(message)
                return
            self._send(message, None, now)

    def _fill(self, now: float) -> None:
        """What is on disk goes out, as much as may be out at a time."""
        spool = self._spool
        if spool is None or self._client.broken:
            return
        while not self._full() and (found := spool.read()) is not None:
            segment, message = found
            self._send(message, segment, now)

    def _full(self) -> bool:
        return len(self._out) >= MOST_OUT or self._out_bytes >= MOST_OUT_BYTES

    def _send(self, message: Stored, segment: Segment | None, now: float) -> None:
        self._token += 1
        out = Out(self._token, message, now, segment)
        self._out[out.token] = out
        self._out_bytes += len(message.value)
        lane = self._lanes.setdefault(message.topic, Lane())
        if lane.closed():
            lane.parked.append(out)
        else:
            self._fly(lane, out)

    def _fly(self, lane: Lane, out: Out) -> None:
        lane.flying[out.token] = out
        outcome = self._client.send(out.token, out.message)
        if outcome is not None:
            self._settle(outcome)

    def _retry(self, now: float) -> None:
        """Parked messages go out again when their topic is empty: in order, and suspects one by one."""
        if self._client.broken:
            return
        for lane in self._lanes.values():
            while ready := lane.ready(now):
                for out in ready:
                    if now < lane.retry_at:
                        # The one before it has just come back.
                        lane.park(out, now)
                    else:
                        self._fly(lane, out)

    def _settle(self, outcome: Outcome) -> None:
        out = self._out.get(outcome.token)
        if out is None:
            return
        now = self._clock()
        lane = self._lanes[out.message.topic]
        lane.flying.pop(out.token, None)
        if outcome.verdict is Verdict.DELIVERED:
            lane.well()
            self._acknowledged_at = now
            self._renew_s = 1.0
            self._ledger.delivered()
            self._done(out)
            if out.segment is not None and self._spool is not None:
                self._backfill.delivered(now, self._spool.messages, self._age_s(out))
            return
        # A broker refuses all that was sent with a message that it does not want: each has a second chance, alone.
        final = outcome.verdict is Verdict.REFUSED and out.alone
        if final or (outcome.verdict is Verdict.NOT_NOW and self._trouble(lane, outcome.reason, out, now)):
            self._refuse(out, outcome.reason, now)
        else:
            out.alone = out.alone or outcome.verdict is Verdict.REFUSED
            lane.park(out, now)

    def _trouble(self, lane: Lane, reason: str, out: Out, now: float) -> bool:
        """Whether the topic has been in trouble for too long; otherwise it is left alone for a while."""
        if lane.trouble_since is None:
            log.warning("%s: %s; trying again for %.0f s", out.message.topic, reason, self._patience_s)
        return lane.trouble(now, self._patience_s)

    def _refuse(self, out: Out, reason: str, now: float) -> None:
        """Set a message aside for good."""
        message = out.message
        self._ledger.refused()
        kept = False
        if self._spool is not None:
            try:
                self._spool.set_aside(message)
                kept = True
            except (OSError, ValueError) as error:
                log.warning("a refused message could not be set aside: %s", error)
        if now >= self._refused_say_at:
            self._refused_say_at = now + REPEAT_S
            where = f"set aside in {self._spool.directory}/refused" if kept and self._spool else "lost"
            count = self._ledger.counts.failed
            log.error(
                "Kafka refuses a message for %s, %s: %s (%d so far)", message.topic, where, reason.rstrip("."), count
            )
        self._ledger.lose(message.subsystem, 0 if kept else 1, message.samples, f"refused by Kafka: {reason}")
        self._done(out)

    def _done(self, out: Out) -> None:
        del self._out[out.token]
        self._out_bytes -= len(out.message.value)
        if out.segment is not None and self._spool is not None:
            self._spool.done(out.segment)

    def _renew(self, now: float) -> None:
        """The client is beyond repair: a new one sends all that is out again."""
        if now < self._renew_at:
            time.sleep(min(TURN_S, self._renew_at - now))
            return
        log.warning(
            "Kafka's client cannot go on (%s): a new one sends %d messages again", self._client.broken, len(self._out)
        )
        self._renew_at = now + self._renew_s
        self._renew_s = min(2 * self._renew_s, LONGEST_BACKOFF_S)
        self._client.renew()
        for lane in self._lanes.values():
            lane.recall()

    def _wait(self, now: float, doubt: bool) -> None:
        """For acknowledgements while they may come, else for something new."""
        flowing = now - self._acknowledged_at < 1.0
        blocked = len(self._inbox) > 0
        if self._out and (flowing or blocked or not doubt):
            # A new message waits no longer than this, and then it is sent or written.
            wait_s = TURN_S / 2 if flowing else TURN_S
            outcomes = self._client.poll(wait_s)
        else:
            if blocked:
                time.sleep(TURN_S)
            else:
                self._inbox.wait(IDLE_S)
            outcomes = self._client.poll(0)
        for outcome in outcomes:
            self._settle(outcome)

    def _report(self, now: float) -> None:
        self._ledger.say()
        if self._spool is None:
            return
        left = self._spool.messages
        self._ledger.spooled(left)
        self._backfill.look(now, left, self._age_s(next(iter(self._out.values()), None)))

    def _age_s(self, out: Out | None) -> float:
        return max(0, self._wall() - out.message.time_ns) / 1e9 if out is not None else 0.0
