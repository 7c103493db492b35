"""Reads the keys of the control records of a cut, on the driver, before the tasks read the records."""

from __future__ import annotations

from collections.abc import Sequence

from streamcore.kafka.range_reader import RangeReader
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import OffsetRange

#: More records are not read twice: the answer is no.
_MAX_RECORDS = 1_000


class ControlKeyReader:
    """Tells the subject of control records by their keys. It connects when it is first asked."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._reader: RangeReader | None = None

    def all_begin_with(self, prefixes: tuple[bytes, ...], ranges: Sequence[OffsetRange]) -> bool:
        """Return whether the keys of all records in these ranges begin with one of the prefixes. Raises as
        ``RangeReader.read``."""
        if not ranges:
            return True
        if not prefixes or sum(one.end - one.start for one in ranges) > _MAX_RECORDS:
            return False
        reader, self._reader = self._reader or RangeReader(self._settings), None
        keys = [key for batch in reader.read(ranges) for key in batch.column("key").to_pylist()]
        self._reader = reader  # after an error the next call creates one
        return all(key is not None and key.startswith(prefixes) for key in keys)
