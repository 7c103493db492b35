"""Iceberg tables as a sink: one snapshot of a table for each cut, with the cut's number in the same commit.

The only package that imports ``pyiceberg``. ``settings`` has the settings of the sink, ``schema`` says what a table
holds of a lane's columns, ``table`` wraps the library, ``sink`` is the protocol.
"""
