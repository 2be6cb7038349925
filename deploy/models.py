"""The models of hosts, as Kafka holds them: read, shown, and commands about them to workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from schemas.records import StateRecord, state_key
from schemas.settings import KafkaSettings
from schemas.topics import MODELS
from stream_processors.control import Command
from stream_processors.inventory import Holding, Model, holding, wanted
from stream_processors.kafka import ask, models_end, read_states, told_since, topic_partitions

ASK_S: Final = 10.0


class ModelsError(Exception):
    """What is asked cannot be done; the text says why."""


def read(kafka: KafkaSettings, host: str = "") -> Iterator[tuple[int, Holding]]:
    """Partition and holding of every host, or of one. Raises ModelsError when there is none of that name."""

    partitions = topic_partitions(kafka).get(MODELS)
    if partitions is None:
        raise ModelsError(f"there is no topic {MODELS}; `reveal topics` makes it")
    mine = state_key(host, "")
    found, others = 0, set[str]()
    for partition in range(partitions):
        states = read_states(kafka, partition, lambda key: wanted(key) and (not host or key.startswith(mine)))
        for name, records in sorted(states.items()):
            others.add(name)
            found += 1
            yield partition, holding(name, records)
    if host and not found:
        raise ModelsError(f"nothing is known of {host}; `reveal models list` shows the hosts that are known")


def find(kafka: KafkaSettings, host: str) -> tuple[int, Holding]:
    return next(read(kafka, host))


def command(kafka: KafkaSettings, action: str, host: str, version: int, wait_s: float) -> str:
    """Have the worker of `host` pin `version`, unpin or roll back, and say what it does now. Raises ModelsError or
    KafkaException.
    """
    partition, held = find(kafka, host)
    chosen = None if action == "unpin" else _pinned(held, version) if action == "pin" else _before(held)
    if action == "unpin" and held.pinned is None:
        raise ModelsError(f"{host} has no version pinned")
    asked = Command(host, None) if chosen is None else Command(host, chosen.version, chosen.record)
    end = models_end(kafka, partition)
    ask(kafka, partition, asked.record(), ASK_S)

    def obeyed(record: StateRecord) -> bool:
        state = json.loads(record.manifest)
        return bool(state.get("pinned") == asked.pinned and (chosen is None or state.get("using") == chosen.version))

    if not told_since(kafka, (partition, end), state_key(host, "progress"), obeyed, wait_s):
        raise ModelsError(
            f"{asked.words}: asked for, but no worker has said within {wait_s:.0f} s that it obeys. One that is"
            " started later will; if one runs, look for `not-obeyed` among the dead letters"
        )
    return asked.words


def _pinned(held: Holding, version: int) -> Model:
    model = held.model(version)
    if model is None:
        raise ModelsError(f"version {version} of {held.host} is not kept; these are: {_kept(held)}")
    return model


def _before(held: Holding) -> Model:
    before = held.before()
    if before is None:
        raise ModelsError(
            f"{held.host} uses version {held.using}, and none before it is kept; these are: {_kept(held)}"
        )
    return before


def _kept(held: Holding) -> str:
    return ", ".join(str(each.version) for each in held.models) or "none"


def list_all(holdings: Sequence[Holding], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_as_json(held) for held in holdings], indent=2))
        return

    table = Table("host", "state", "in use", "kept", "learnt until (UTC)", "features", "work", box=None, pad_edge=False)
    for column in table.columns[:-1]:
        column.no_wrap = True
    for held in holdings:
        model = held.model(held.using)
        table.add_row(
            held.host,
            held.state,
            str(held.using or "-"),
            _kept(held),
            _time(model.learnt_to) if model else "-",
            f"{model.kept / model.features:.0%}" if model else "-",
            "; ".join(held.flaws) or held.change or ("steady" if model else f"{held.learnt} windows learnt"),
        )
    Console(file=sys.stdout).print(table if holdings else "no model of any host")


def show(held: Holding, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_as_json(held), indent=2))
        return
    print(f"{held.host}: {held.state}, version {held.using or '-'} in use")
    if held.change:
        print(f"  {held.change}; {held.learnt} windows of it are learnt")
    for flaw in held.flaws:
        print(f"  cannot be read: {flaw}")
    for model in held.models:
        marks = [word for word, holds in (("in use", model.version == held.using),) if holds]
        marks += ["pinned"] if model.version == held.pinned else []
        print(f"version {model.version}{' (' + ', '.join(marks) + ')' if marks else ''}")
        print(f"  learnt from {model.learnt_rows} windows, {_time(model.learnt_from)} to {_time(model.learnt_to)} UTC")
        print(f"  looks at {_share(model.metrics_kept, model.metrics)} of the metrics", end="")
        print(f", {_share(model.kept, model.features)} of the features")
        for subsystem, thresholds in model.thresholds.items():
            told = ", ".join(f"{detector} {threshold:.4g}" for detector, threshold in thresholds.items())
            print(f"  {subsystem} votes above: {told}")


def _as_json(held: Holding) -> dict[str, Any]:
    return {
        "host": held.host,
        "state": held.state,
        "using": held.using,
        "pinned": held.pinned,
        "change": held.change,
        "learnt": held.learnt,
        "flaws": list(held.flaws),
        "models": [
            {
                "version": model.version,
                "learnt_from": _time(model.learnt_from),
                "learnt_to": _time(model.learnt_to),
                "learnt_rows": model.learnt_rows,
                "metrics": model.metrics,
                "metrics_kept": model.metrics_kept,
                "features": model.features,
                "features_kept": model.kept,
                "thresholds": model.thresholds,
            }
            for model in held.models
        ],
    }


def _share(kept: int, of: int) -> str:
    return f"{kept} of {of} ({kept / of:.0%})" if of else "-"


def _time(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}" if second else "-"
