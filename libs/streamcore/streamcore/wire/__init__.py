"""The formats in which records and rows cross between processes: raw batches, lane records, Arrow IPC streams.

Exists so that both ends of a crossing share one definition. Promises columns instead of objects wherever a record has
no headers. Knows neither the sink of a lane nor the meaning of the bytes.
"""
