"""Recognises the envelope of a sample, and takes the events out of it, so that their paths are those of a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headgate.streams.sample import SampleRecord
from streamcore.decode.scalar import DecodeLimits, StreamRecord
from streamcore.decode.scalar.json import parse_object
from streamcore.decode.scalar.values import ObjectValue, RecordError
from streamcore.schema import Envelope
from streamcore.schema.record_places import BINARY_MARK, CE_HEADER, CLOUDEVENT

_LOOKED_AT: Final = 100
_ATTRIBUTES: Final = ("id", "source", "type", "specversion")
_OPERATIONS: Final = ("c", "u", "d", "r", "t", "m")


def find_envelope(records: Sequence[SampleRecord]) -> Envelope | None:
    """Return the envelope that the first records of a sample have; None if one of them has none."""
    first = [one.record for one in records[:_LOOKED_AT] if one.record.value is not None]
    for envelope, has_it in ((Envelope.CLOUDEVENTS, _is_cloud_event), (Envelope.DEBEZIUM, _is_change)):
        if first and all(map(has_it, first)):
            return envelope
    return None


def read_event(record: StreamRecord, envelope: Envelope | None) -> ObjectValue:
    """Return the event of a record, with the attributes of a CloudEvent as one more object; raise ``RecordError``."""
    value = parse_object(record.value, DecodeLimits())
    match envelope:
        case Envelope.CLOUDEVENTS:
            return _cloud_event(record, value)
        case Envelope.DEBEZIUM:
            return _payload(value)
    return value


def _members(record: StreamRecord, *, inside: bool = False) -> Mapping[str, object]:
    try:
        value = parse_object(record.value, DecodeLimits())
    except RecordError:
        return {}
    return dict((_payload(value) if inside else value).pairs)


def _is_cloud_event(record: StreamRecord) -> bool:
    members = _members(record)
    return record.headers.get(BINARY_MARK) is not None or all(isinstance(members.get(n), str) for n in _ATTRIBUTES)


def _is_change(record: StreamRecord) -> bool:
    members = _members(record, inside=True)
    return members.get("op") in _OPERATIONS and "source" in members and ("before" in members or "after" in members)


def _payload(value: ObjectValue) -> ObjectValue:
    inside = dict(value.pairs).get("payload")
    return inside if isinstance(inside, ObjectValue) and value.pairs[0][0] in ("schema", "payload") else value


def _cloud_event(record: StreamRecord, value: ObjectValue) -> ObjectValue:
    if record.headers.get(BINARY_MARK) is not None:
        texts = {n: (v or b"").decode("utf-8", "replace") for n, v in record.headers.items()}
        own = {n.removeprefix(CE_HEADER): text for n, text in texts.items() if n.startswith(CE_HEADER)}
        return ObjectValue(((CLOUDEVENT, ObjectValue((*own.items(),))), *value.pairs))
    data = dict(value.pairs).get("data")
    own_pairs = ObjectValue(tuple(pair for pair in value.pairs if pair[0] not in ("data", "data_base64")))
    return ObjectValue(((CLOUDEVENT, own_pairs), *(data.pairs if isinstance(data, ObjectValue) else ())))
