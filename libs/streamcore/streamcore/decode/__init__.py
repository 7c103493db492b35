"""From the bytes of a record to typed columns, or to a dead letter that says why not.

What a stream accepts is defined once, per record and in plain Python (``streamcore.records``): slow and obviously
right. ``JsonDecoder`` is the fast one: a regular expression built from the stream's schema *vouches* for the
records whose text can only mean what a columnar JSON parser reads out of it; only those go to the parser, all others
to the reference. So the fast path accepts the same records with the same values, and one bad record costs one
record. The package knows neither Spark nor Kafka, nor any clock: "now" comes in with the batch.
"""

from __future__ import annotations

from streamcore.decode.access_log import LogLayout
from streamcore.decode.batch import DEAD_SCHEMA, Decoded, Decoder, RawBatch
from streamcore.decode.decoder import JsonDecoder
from streamcore.decode.formats import (
    JSON,
    AccessLog,
    Avro,
    Bare,
    Confluent,
    Container,
    Csv,
    Framing,
    InputFormat,
    Json,
    SingleObject,
)
from streamcore.records.record import Rejected
from streamcore.records.reference import decode_one
from streamcore.records.terms import DeadCode, DecodeLimits, ExtraFields

__all__ = [
    "DEAD_SCHEMA",
    "JSON",
    "AccessLog",
    "Avro",
    "Bare",
    "Confluent",
    "Container",
    "Csv",
    "DeadCode",
    "DecodeLimits",
    "Decoded",
    "Decoder",
    "ExtraFields",
    "Framing",
    "InputFormat",
    "Json",
    "JsonDecoder",
    "LogLayout",
    "RawBatch",
    "Rejected",
    "SingleObject",
    "decode_one",
]
