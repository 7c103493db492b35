"""``python -m tests.harness.decode.walk_answers SEED COUNT``: a digest of what the walk says of hostile records.

With ``NUMBA_DISABLE_JIT=1`` the walk runs uncompiled: the digest is the same, and NumPy checks each access to an array.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.walk.decoder import RecordWalk, WalkedRecords
from streamcore.timestamps import load_zone
from tests.harness.decode.hostile_json import STREAMS, make_records

Answers = list[tuple[object, ...] | None]
CLOCK_MS = 1_800_000_000_000
#: Small ones, so that records exceed them.
LIMITS = DecodeLimits(max_record_bytes=4_000, max_depth=20)
FEW_VALUES = replace(LIMITS, max_record_values=12)


def walk_records(walk: RecordWalk, records: pa.LargeBinaryArray) -> WalkedRecords:
    """Return what the walk says of records."""
    starts = RecordStarts(records)
    return walk.decode(starts.content, starts.begins, starts.ends, starts.lengths >= 0, CLOCK_MS)


def walk_answers(
    stream: str, extra: ExtraFields, records: Sequence[bytes | None], limits: DecodeLimits = LIMITS
) -> Answers:
    """Return the values of each record; None where the walk leaves it to the reference."""
    schema = STREAMS[stream]
    walk = RecordWalk(schema, load_zone(schema.zone), limits, extra)
    walked = walk_records(walk, pa.array(records, pa.large_binary()))
    walked.columns.validate(full=True)
    rows = iter(zip(*(column.to_pylist() for column in walked.columns.columns), strict=True))
    return [next(rows) if sure else None for sure in walked.sure]


def all_answers(seed: int, count: int) -> Iterator[tuple[str, ExtraFields, DecodeLimits, list[bytes], Answers]]:
    """Return the records and answers of each stream, with and without extra fields, with many values and few."""
    for stream in STREAMS:
        for extra in ExtraFields:
            records = [record for odds in (0.0, 0.03, 0.15) for record in make_records(stream, seed, count, odds)]
            for limits in (LIMITS, FEW_VALUES) if stream == "typed" else (LIMITS,):
                yield stream, extra, limits, records, walk_answers(stream, extra, records, limits)


def digest(seed: int, count: int) -> str:
    """Return the digest of all answers. ``count``: records of each stream, for each odds."""
    seen = hashlib.sha256()
    for *_, answers in all_answers(seed, count):
        seen.update(repr(answers).encode("utf-8", "surrogatepass"))
    return seen.hexdigest()


if __name__ == "__main__":
    print(digest(int(sys.argv[1]), int(sys.argv[2])))
