"""The pages of a service by their paths, without HTTP."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from pages.exposition import KIND, Metric, counter, exposition

LOG: Final = logging.getLogger(__name__)
TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"
METRICS: Final = "/metrics"


class Answer(NamedTuple):
    """Status, type of the content, and the content."""

    code: int
    kind: str
    text: str


Page = Callable[[Mapping[str, str]], Answer]
"""Made of the values of a query. Changes nothing: probes and mail scanners follow links."""
Form = Callable[[Mapping[str, str], Mapping[str, str]], Answer]
"""Made of the values of a query and those of a form; stores what was said."""


class Site:
    """What `service` has to say: /metrics, and `pages` and `forms` by path. May be asked by several threads at once.

    metrics  families of /metrics, to which the site adds how many pages could not be made
    """

    def __init__(
        self,
        service: str,
        metrics: Callable[[], Iterable[Metric]],
        pages: Mapping[str, Page],
        forms: Mapping[str, Form] | None = None,
    ) -> None:
        self.service = service
        self._metrics = metrics
        self._pages: Mapping[str, Page] = {METRICS: self._exposed, **pages}
        self._forms = forms or {}
        self._faults = 0
        self._lock = threading.Lock()

    def get(self, path: str, query: str = "") -> Answer:
        """The page at `path`."""
        page = self._pages.get(path)
        if page is None:
            return self._nothing()
        return self._made(path, lambda: page(_values(query)))

    def post(self, path: str, query: str, form: str) -> Answer:
        """Take the form that was filled in at `path`."""
        page = self._forms.get(path)
        if page is None:
            return self._nothing()
        return self._made(path, lambda: page(_values(query), _values(form)))

    def _made(self, path: str, make: Callable[[], Answer]) -> Answer:
        try:
            return make()
        except Exception:
            with self._lock:
                self._faults += 1
            # Not the query: it may hold a signature.
            LOG.exception("%s cannot be served", path)
            return Answer(500, TEXT, "a fault of the service; its log says which\n")

    def _nothing(self) -> Answer:
        return Answer(404, TEXT, f"there is {', '.join(self._pages)}\n")

    def _exposed(self, _: Mapping[str, str]) -> Answer:
        faults = counter(f"reveal_{self.service}_page_faults", "Pages that could not be made", self._faults)
        return exposed([*self._metrics(), faults])


def exposed(families: Iterable[Metric]) -> Answer:
    """A page for Prometheus."""
    return Answer(200, KIND, exposition(families))


def _values(text: str) -> Mapping[str, str]:
    return dict(parse_qsl(text))
