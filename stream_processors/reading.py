"""How far a partition is read.

A window waits for a subsystem that lags. What lags because it was not sent and what lags because it was not read yet
cannot be told by the clock of the reader: topics are read at different speeds, and a reader that fell behind reads a
minute within seconds. It is told by the time in which messages were sent: when everything that was sent until then is
read, what is missing did not come.
"""

from __future__ import annotations

from collections.abc import Mapping


class Reading:
    """Place in the topics of one partition. Nothing that was sent before `time`, s since 1970-01-01 UTC, is unread; it
    never goes back.

    begin  offset of the first message to be read, by topic
    """

    def __init__(self, begin: Mapping[str, int]) -> None:
        self.time = 0.0
        self._next = dict(begin)
        self._sent: dict[str, float] = {}

    def read(self, topic: str, offset: int, sent: float) -> None:
        """A message was read that was sent at `sent`, s: or later, if one before it in its topic was, since clocks of
        brokers differ, and of hosts more, where topics keep those.
        """
        self._next[topic] = offset + 1
        self._sent[topic] = max(sent, self._sent.get(topic, 0.0))

    def upto(self, at_hand: Mapping[str, float], ends: Mapping[str, int | None], now: float) -> float:
        """The time until which everything is read, when messages are at hand whose first was sent then, by topic.

        ends  by topic the offset that its next message will have, None if that is not known yet
        now   the time if nothing is unread
        """
        unread = [
            max(at_hand.get(topic, 0.0), self._sent.get(topic, 0.0))
            for topic, end in ends.items()
            if topic in at_hand or end is None or end > self._next.get(topic, 0)
        ]
        self.time = max(self.time, min(unread, default=now))
        return self.time
