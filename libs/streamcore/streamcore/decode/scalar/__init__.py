"""The reference decoder: defines the records that a stream accepts, one record at a time, in plain Python.

A record becomes its physical values, or a rejection with its reason. ``decode_one`` decodes a value of JSON,
``decode_json_event`` a record with it; the rules of sizes, values and times are those of all formats. The columnar
decoders (``streamcore.decode``) return the same values and reasons. Nothing here loads Arrow, Polars or NumPy.
"""

from __future__ import annotations

from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.scalar.event import IgnoredRecord, StreamRecord, decode_json_event, make_record
from streamcore.decode.scalar.json import decode_one, parse_json
from streamcore.decode.scalar.record import RejectedRecord
from streamcore.decode.scalar.values import Physical, RecordError, convert

__all__ = [
    "DecodeLimits",
    "ExtraFields",
    "IgnoredRecord",
    "Physical",
    "RecordError",
    "RejectCode",
    "RejectedRecord",
    "StreamRecord",
    "convert",
    "decode_json_event",
    "decode_one",
    "make_record",
    "parse_json",
]
