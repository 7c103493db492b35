"""A task's part of a look-up: it reads schemas from the checkpoint, and waits for those that are not there yet."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from streamcore.schema_registry.schemas import RegisteredSchema, SchemaId
from streamcore.schema_registry.store import SchemaStore

_PAUSE_S, _PAUSE_MAX_S = 0.02, 0.5


@dataclass(frozen=True, slots=True)
class SchemaPins:
    """What a task must know of the schemas of its cut: the number of the batch, and the ids that are absent in it,
    which are known when the cut runs again."""

    batch: int
    absent: tuple[SchemaId, ...] = ()


@dataclass(slots=True)
class StoredSchemas:
    """The ``SchemaLookup`` of a task of stage 1."""

    store: SchemaStore
    pins: SchemaPins
    _absent: set[SchemaId] = field(init=False)

    def __post_init__(self) -> None:
        self._absent = {*self.pins.absent}

    def absent(self) -> Collection[SchemaId]:
        """See ``SchemaLookup``."""
        return self._absent

    def find(self, ids: Collection[SchemaId]) -> Mapping[SchemaId, RegisteredSchema | None]:
        """See ``SchemaLookup``. The task waits as long as the driver has no answer; it ends with its driver."""
        found: dict[SchemaId, RegisteredSchema | None] = {n: None for n in ids if n in self._absent}
        pause_s = 0.0
        while missing := [n for n in ids if n not in found]:
            if pause_s:
                time.sleep(pause_s)
            absent = self.store.absent(self.pins.batch)
            for n in missing:
                if n in absent:
                    self._absent.add(n)
                    found[n] = None
                elif (schema := self.store.read(n)) is not None:
                    found[n] = schema
            if not pause_s and (unknown := [n for n in ids if n not in found]):
                self.store.want(self.pins.batch, unknown)
            pause_s = min(max(_PAUSE_S, 1.5 * pause_s), _PAUSE_MAX_S)
        return found
