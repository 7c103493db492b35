"""The formats in which records and rows cross between processes: raw batches, lane records, Arrow IPC streams.

Exists so that both ends of a crossing share one definition. Promises columns instead of objects wherever a record has
no headers. Knows neither what a lane ends in nor what the bytes mean.
"""
