"""Sessions: connections that outlive a request, with their temporary tables and SET. Used from the event loop only."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from deploy.clickhouse.engine import Connection
from deploy.clickhouse.errors import SESSION_IS_LOCKED, SESSION_NOT_FOUND, QueryError

DEFAULT_TIMEOUT_S = 60.0
LONGEST_TIMEOUT_S = 3600.0


@dataclass
class Session:
    """A named connection of one user, held by one request at a time."""

    connection: Connection
    timeout_s: float
    until: float
    held: bool = field(default=True)


class Sessions:
    """All sessions by user and name. `clock` gives seconds and never goes back."""

    def __init__(self, connect: Callable[[str], Connection], clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._sessions: dict[tuple[str, str], Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def take(self, user: str, name: str, timeout_s: float, must_exist: bool) -> Session:
        """Holds the session, new if there is none. Raises QueryError when it is held, or must exist and does not."""
        self.expire()
        session = self._sessions.get((user, name))
        if session is None:
            if must_exist:
                raise QueryError.of(SESSION_NOT_FOUND, f"Session {name} not found")
            session = self._sessions[user, name] = Session(self._connect(user), timeout_s, 0.0)
        elif session.held:
            raise QueryError.of(SESSION_IS_LOCKED, f"Session {name} is locked by a concurrent client")
        session.held = True
        session.timeout_s = timeout_s
        return session

    def give_back(self, session: Session) -> None:
        """The time-out starts anew."""
        session.held = False
        session.until = self._clock() + session.timeout_s

    def expire(self) -> None:
        """Closes those that nobody asked for within their time-out."""
        now = self._clock()
        for key in [key for key, session in self._sessions.items() if not session.held and session.until < now]:
            self._sessions.pop(key).connection.close()

    def close(self) -> None:
        """Closes all."""
        for session in self._sessions.values():
            session.connection.close()
        self._sessions.clear()
