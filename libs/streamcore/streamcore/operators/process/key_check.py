"""Output ports whose rows have the key of their call, so that rows need not be sent again to the shard of their key."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from streamcore.keyed.call_records import PortBuffer
from streamcore.keyed.keyed_store import KeyedStore
from streamcore.keyed.value_codec import ValueTypeMismatch, describe


class KeyCheckedPort(PortBuffer):
    """A port that rejects a row with another key than that of the call. Ports without the key columns take all rows."""

    def __init__(self, name: str, schema: Mapping[str, pl.DataType], store: KeyedStore) -> None:
        super().__init__(name, schema, store.scope)
        self._keys = store.keys
        columns = [*schema]
        key = store.keys.dtypes
        self._key_indexes = [columns.index(column) for column in key] if key.keys() <= schema.keys() else []

    def add(self, row: object) -> None:
        """Add one row, as ``PortBuffer.add``; ``ValueTypeMismatch`` for another key."""
        super().add(row)
        if not self._key_indexes:
            return
        values = tuple(self._values[len(self._values) - len(self._schema) + index] for index in self._key_indexes)
        key = self._keys.keys[self._scope.key_slot]
        if values != (key if len(values) > 1 else (key,)):
            raise ValueTypeMismatch(
                f"port {self.name}: the row has key {describe(values)} and the call {describe(key)}; emit the key of "
                "the call, or leave out keeps_key"
            )
