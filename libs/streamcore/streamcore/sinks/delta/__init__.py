"""Delta tables as a sink: one commit of a table for each cut, with the cut's number in the same commit.

The only package that imports ``deltalake``. ``settings`` has the settings of the sink, ``schema`` and ``rows``
convert to what a table can hold, ``table`` wraps the library, ``sink`` is the protocol, ``maintenance`` compacts files.
"""
