"""Rows of lanes in PostgreSQL tables: each cut exactly once, in one transaction with the ledger row that says so.

``PostgresSettings`` and ``PostgresSink`` are what others use; this is the only package that imports psycopg. ``sink``
holds the protocol, ``ledger`` its row, ``catalog`` what a table must be like, ``cut`` what can be said of rows without
the server, ``staging`` and ``applying`` how they get into their tables. Refuses to know what an app computes.
"""
