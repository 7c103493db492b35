"""Reads a sample from Avro container files, of any number of records each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headgate.errors import InputError
from headgate.streams.sample import MAX_FILE_BYTES, SampleRecord, read_content
from streamcore.decode.avro.container_files import split_container
from streamcore.decode.reject_codes import DecodeLimits
from streamcore.decode.scalar import StreamRecord
from streamcore.decode.scalar.values import RecordError


def read_avro(files: Sequence[Path], limit: int) -> list[SampleRecord]:
    """Return the first ``limit`` records of container files, each as one of its own; ``InputError`` for a file that is
    none, or is damaged before that place."""
    records: list[SampleRecord] = []
    for file in files:
        data = read_content(file)
        try:
            for number, record in enumerate(split_container(data, DecodeLimits(), MAX_FILE_BYTES), 1):
                if len(records) == limit:
                    return records
                records.append(SampleRecord(f"{file} #{number}", StreamRecord(record)))
        except RecordError as error:
            raise InputError(f"{file}: {error.reason}") from None
    if not records:
        raise InputError(f"{files[0]}: there are no records")
    return records
