"""What a person asks of the worker that has a host, as it travels through the control topic."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from schemas.codec import Rejected
from schemas.records import Record, StateRecord
from stream_processors.learning import model_slot

SLOT: Final = "control"


@dataclass(frozen=True, slots=True)
class Command:
    """Keep a version of a host's baseline, or learn on.

    pinned  the version; None to learn on
    model   the record of that version, as the models topic has it
    """

    host: str
    pinned: int | None
    model: StateRecord | None = None

    @property
    def words(self) -> str:
        """What is asked."""
        if self.pinned is None:
            return f"{self.host} learns on"
        return f"{self.host} keeps version {self.pinned} of its model"

    def record(self) -> StateRecord:
        """As it is published."""
        manifest = {"pinned": self.pinned, "model": self.model.manifest if self.model is not None else None}
        return StateRecord(self.host, SLOT, json.dumps(manifest), self.model.arrays if self.model is not None else {})


def read_command(record: Record) -> Command:
    """The command that `record` came from. Raises Rejected with reason wrong-record for any other record."""
    if not isinstance(record, StateRecord) or record.slot != SLOT:
        raise Rejected("wrong-record", f"expected a command, got {type(record).__name__}")
    try:
        manifest = json.loads(record.manifest)
        pinned = manifest["pinned"]
        if pinned is None:
            return Command(record.host, None)
        model = StateRecord(record.host, model_slot(int(pinned)), str(manifest["model"]), record.arrays)
        return Command(record.host, int(pinned), model)
    except (KeyError, TypeError, ValueError) as error:
        raise Rejected("wrong-record", f"no command: {type(error).__name__}: {error}") from None
