"""The interface of process functions: of one stream, of a stream with a broadcast stream, and of two keyed streams.

A connected stream is two streams that one function processes with one state. ``streamcore.operators.process`` defines
the order of the calls of a cut.
"""
