"""Decodes JSON records: ``JsonDecoder`` by a compiled walk (``streamcore.decode.walk``), ``JsonReference`` one by one.

Values and reasons are those of the reference (``streamcore.decode.scalar``); the walk changes only the cost.
"""
