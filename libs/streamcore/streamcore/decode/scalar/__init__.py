"""The reference decoder: defines the records that a stream accepts, one record at a time, in plain Python.

Promises: a record is its physical values (``decode_one``), or a rejection with its reason. Every faster decoder
(``streamcore.decode``) gives the same values and the same reasons, for it asks this one whenever it is not sure.
Refuses to know columns: nothing here loads Arrow, Polars or NumPy.
"""

from __future__ import annotations

from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.scalar.json import decode_one
from streamcore.decode.scalar.record import RejectedRecord
from streamcore.decode.scalar.values import Scalar

__all__ = ["DecodeLimits", "ExtraFields", "RejectCode", "RejectedRecord", "Scalar", "decode_one"]
