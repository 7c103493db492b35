"""Reads the fields of a stream out of records, in one pass over their bytes, compiled by numba.

This package reads JSON, and ``binary`` Avro and Protobuf. ``literals`` finds texts in texts, for the index of rules,
``ids`` ids in the index of a deduplication, and ``totals`` keeps running totals.

The walk goes through a record once. It checks all of it (strict JSON), reads the values on the paths of the stream's
fields and skips the others. It answers for a record only if it is sure: the record is valid, and each value is exact.
It gives no reasons: the reference (``streamcore.decode.scalar``) decides on all other records.

The functions that are compiled are plain Python over integers and NumPy arrays. With ``NUMBA_DISABLE_JIT=1`` they run
as they are, with the same result. Only this package imports numba, which takes a fifth of a second and 50 MB: a process
imports the package when it decodes its first batch.
"""
