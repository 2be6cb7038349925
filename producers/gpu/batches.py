"""Values by number: which of them a GPU knows, and the batches in which they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from producers.gpu import nvml
from producers.gpu.fields import FAST, FIELDS, LINK_COUNT, LINK_STATE, MEDIUM
from producers.gpu.part import Gone, Part, refused

Pair: TypeAlias = tuple[int, int]
"""Number of a field, and its scope, which is a link or 0."""
Row: TypeAlias = tuple[str, str, list[Pair]]
"""Metric, instance, and the values that add up to it."""


class Batches:
    """Fields of one GPU, called `name`. `parts` are of one call each: what is read every cycle, and what at times."""

    def __init__(self, gpu: nvml.Handle, name: str) -> None:
        self._gpu = gpu
        self._name = name

    def parts(self) -> list[Part]:
        """Parts of all that the GPU knows. Raises nvml.Error, Gone."""
        numbers = [number for one in FIELDS for number in (*one.ids, *one.summed)]
        known = self._answered([(number, 0) for number in (*numbers, LINK_COUNT)])
        links = self._link_count(known)
        known |= self._answered([(number, link) for number in numbers for link in range(1, links)])
        rows: dict[int, list[Row]] = {FAST: [], MEDIUM: []}
        for one in FIELDS:
            number = next((number for number in one.ids if (number, 0) in known), None)
            if one.per_link:
                # A link that is not there does not stand for the others, nor the first one for all.
                number = next((number for number in one.ids for link in range(links) if (number, link) in known), None)
                rows[one.every_ns] += [
                    (one.metric, f"{self._name}/link{link}", [(number, link)])
                    for link in range(links)
                    if number is not None and (number, link) in known
                ]
            elif number is not None:
                rows[one.every_ns].append((one.metric, self._name, [(number, 0)]))
            else:
                sums = ([(number, link) for link in range(links) if (number, link) in known] for number in one.summed)
                if terms := next(filter(None, sums), None):
                    rows[one.every_ns].append((one.metric, self._name, terms))
        parts = [self._batch(found, every_ns) for every_ns, found in rows.items() if found]
        if not any((LINK_STATE, link) in known for link in range(links)):
            parts += [part for link in range(links) if (part := self._link_state(link))]
        return parts

    def _answered(self, pairs: Sequence[Pair]) -> set[Pair]:
        """Those that this GPU knows. Raises nvml.Error, Gone."""
        if not pairs:
            return set()
        try:
            _, errors = nvml.FieldValues(self._gpu, pairs).read()
        except nvml.Error as error:
            if not refused(error) or len(pairs) == 1:
                raise
            # Old drivers refuse all because of one that they do not know.
            found: set[Pair] = set()
            for pair in pairs:
                try:
                    found |= self._answered([pair])
                except nvml.Error as single:
                    refused(single)
            return found
        if nvml.GONE.intersection(errors):
            raise Gone("a field value says so")
        return {pair for pair, failed in zip(pairs, errors, strict=True) if failed not in nvml.PERMANENT}

    def _link_count(self, known: set[Pair]) -> int:
        if (LINK_COUNT, 0) in known:
            (count,), _ = nvml.FieldValues(self._gpu, [(LINK_COUNT, 0)]).read()
            if 0 <= count <= nvml.MOST_LINKS:
                return int(count)
        try:
            return nvml.link_count(self._gpu)
        except nvml.Error as error:
            refused(error)
            return 0

    def _link_state(self, link: int) -> Part | None:
        try:
            nvml.link_state(self._gpu, link)
        except nvml.Error as error:
            if refused(error):
                return None
        channel = ("gpu.nvlink_state", f"{self._name}/link{link}")
        return Part((channel,), lambda: (nvml.link_state(self._gpu, link),), MEDIUM)

    def _batch(self, rows: Sequence[Row], every_ns: int) -> Part:
        values = nvml.FieldValues(self._gpu, [pair for _, _, pairs in rows for pair in pairs])
        channels = tuple((metric, instance) for metric, instance, _ in rows)
        lengths = [len(pairs) for _, _, pairs in rows]
        plain = all(length == 1 for length in lengths)

        def read() -> Sequence[float]:
            found, errors = values.read()
            if any(errors) and nvml.GONE.intersection(errors):
                raise Gone("a field value says so")
            if plain:
                return found
            sums, start = [], 0
            for length in lengths:
                sums.append(sum(found[start : start + length]))
                start += length
            return sums

        return Part(channels, read, every_ns)
