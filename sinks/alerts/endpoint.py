"""The pages for probes, scrapers and people with a feedback link: /healthz, /metrics and /feedback."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pages.exposition import Metric, counter, gauge
from pages.site import HTML, TEXT, Answer, Form, Page, Site
from sinks.alerts.feedback import MEANINGS, Links
from sinks.alerts.held import short_id
from sinks.alerts.service import Status

HANGING_S: Final = 60.0
MOST_NOTE: Final = 500

Judge = Callable[[str, str, str, str], str]
"""Stores feedback: key, verdict, who, note; says in words what was done. Raises ValueError when it cannot be."""


def site(
    status: Status,
    links: Links,
    judge: Judge,
    *,
    clock: Callable[[], float] = time.monotonic,
    now_ns: Callable[[], int] = time.time_ns,
) -> Site:
    """Pages of what `status` tells, and the feedback page of `links`, which there is not without their secret.

    judge  stores what was said there
    """

    def alive(_: Mapping[str, str]) -> Answer:
        silent = clock() - status.turned_s
        if silent > HANGING_S:
            return Answer(503, TEXT, f"the loop has not turned for {silent:.0f} s\n")
        return Answer(200, TEXT, "ok\nowner\n" if status.owner else "ok\nstanding by\n")

    def ask(query: Mapping[str, str]) -> Answer:
        if why := links.check(query, now_ns()):
            return Answer(403, HTML, _page(why))
        return Answer(200, HTML, _page(_question(query), _FORM))

    def take(query: Mapping[str, str], form: Mapping[str, str]) -> Answer:
        if why := links.check(query, now_ns()):
            return Answer(403, HTML, _page(why))
        by, note = (" ".join(form.get(name, "").split())[:MOST_NOTE] for name in ("by", "note"))
        try:
            done = judge(query["alert"], query["verdict"], by, note)
        except ValueError as error:
            return Answer(409, HTML, _page(str(error)))
        return Answer(200, HTML, _page(done))

    pages: dict[str, Page] = {"/healthz": alive}
    forms: dict[str, Form] = {}
    if links.secret:
        pages["/feedback"], forms["/feedback"] = ask, take
    return Site("alerts", lambda: metrics(status), pages, forms)


def metrics(status: Status) -> Iterator[Metric]:
    """What the service says of itself."""
    yield gauge("reveal_alerts_owner", "Whether this instance owns the alerts", status.owner)
    yield counter("reveal_alerts_episodes", "States of episodes read", status.episodes)
    yield counter("reveal_alerts_unreadable", "Messages that hold no episode", status.unreadable)
    yield gauge("reveal_alerts_held", "Alerts by state", dict(status.alerts), ("state",))
    yield counter("reveal_alerts_transitions", "States of alerts published", dict(status.transitions), ("state",))
    tries = dict(status.tries)
    yield counter("reveal_alerts_tries", "Tries to tell a receiver", tries, ("receiver", "status"))
    text = "Alerts that a receiver should know of and does not"
    yield gauge("reveal_alerts_waiting", text, dict(status.waiting), ("receiver",))


def _question(values: Mapping[str, str]) -> str:
    key, verdict = values["alert"], values["verdict"]
    return f"Alert {short_id(key)} ({key}): is it {MEANINGS.get(verdict, verdict)}?"


_FORM: Final = (
    '<form method="post"><p><label>Your name <input name="by" maxlength="100"></label></p>'
    '<p><label>Note <input name="note" maxlength="500" size="60"></label></p>'
    "<p><button>Yes, store it</button></p></form>"
)


def _page(text: str, more: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Reveal: feedback</title>'
        f'<body style="font-family:sans-serif;max-width:40em;margin:3em auto"><h1>Feedback</h1>'
        f"<p>{html.escape(text)}</p>"
        f"{more}</body></html>\n"
    )
