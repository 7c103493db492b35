"""Folders of Parquet files as a sink, on a disk or in a bucket: a file for each cut and partition, a note for each cut.

``settings`` has the settings of the sink, ``files`` encodes the rows of a cut, ``notes`` is the log of what counts,
``sink`` is the protocol.
"""
