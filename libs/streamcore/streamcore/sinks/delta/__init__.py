"""Delta tables as a sink: one commit of a table for each cut, with the cut's number in the same commit.

The only package that imports ``deltalake``. ``settings`` configures the sink, ``schema`` and ``rows`` what fits
into a table, ``table`` is the library behind one small class, ``sink`` the protocol, ``maintenance`` compacts files.
"""
