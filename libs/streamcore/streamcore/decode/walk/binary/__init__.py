"""Reads the fields of a stream out of binary records (Avro, Protobuf) by compiled walks, in one pass over their bytes.

A schema becomes an array of steps, and one function for all schemas of a format goes through a record by them. Values
of arrays, structs and maps go to columns of their own (``layout``) while a record is read once, however deep they are.
``steps`` and ``layout`` are what makers of steps need, and import no compiler.
"""
