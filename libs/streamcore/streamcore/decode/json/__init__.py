"""Decodes JSON records in columns: the decoder, and the shapes of records that it learns from samples.

Values and reasons are those of the reference (``streamcore.decode.scalar``); learned shapes change only the cost.
"""
