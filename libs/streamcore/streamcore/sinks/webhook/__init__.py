"""An HTTP endpoint as a sink: each cut's rows are posted as JSON arrays, signed, at least once.

``settings`` has the settings of the sink, ``client`` sends one request, ``sink`` is the protocol.
"""
