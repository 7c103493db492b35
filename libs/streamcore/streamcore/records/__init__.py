"""What a stream accepts, said once: one record at a time, in plain Python. Slow and obviously right.

Promises: a record is its physical values (``decode_one``), or a rejection that says why. Every faster way of decoding
(``streamcore.decode``) gives the same values and the same reasons, for it asks this one whenever it is not sure.
Refuses to know columns: nothing here loads Arrow, Polars or NumPy.
"""

from __future__ import annotations

from streamcore.records.record import Rejected
from streamcore.records.reference import decode_one
from streamcore.records.scalars import Scalar
from streamcore.records.terms import DeadCode, DecodeLimits, ExtraFields

__all__ = ["DeadCode", "DecodeLimits", "ExtraFields", "Rejected", "Scalar", "decode_one"]
