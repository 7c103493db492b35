"""The events of a file that an explanation is about."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa

from headgate.decoding import Decoding
from headgate.errors import InputError
from headgate.explain_inquiry import Inquiry
from rulecore.compiled import CompiledRule
from rulecore.explain_rule import Question
from streamcore.schema import StreamSchema

_END_MS = 2**53


def events_of_text(path: Path, schema: StreamSchema, rule: CompiledRule, clock_ms: int) -> Inquiry:
    """One JSON event a line, in order of arrival; the last is the one in question. After it time ends, as in a rule's
    tests."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise InputError(f"--event-json {path}: {error.strerror}; name a file that you may read") from None
    if not lines:
        raise InputError(f"--event-json {path}: is empty; write one JSON event a line")
    count = len(lines)
    decode = Decoding(schema, clock_ms)
    events = decode(pa.array(lines, pa.binary()), pa.array([0] * count, pa.int32()), pa.array(range(count), pa.int64()))
    if decode.dead:
        raise InputError(f"--event-json {path}: no event of {schema.name}: {'; '.join(decode.dead)}")
    if rule.group_by and count > 1:
        key = events[count - 1].select(rule.group_by).row(0, named=True)
        events = events.filter([pl.col(n).eq_missing(pl.lit(v)) for n, v in key.items()])
    question = Question(row=events.height - 1, closing_ms=_END_MS)
    return Inquiry(path.name, events, question, f"the last event of {path}")
