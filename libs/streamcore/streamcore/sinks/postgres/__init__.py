"""Rows of lanes in PostgreSQL tables: each cut exactly once, in one transaction with its row of the ledger.

``PostgresSettings`` and ``PostgresSink`` are what others use; this is the only package that imports psycopg. ``sink``
holds the protocol, ``ledger`` its row; ``catalog`` checks tables, ``row_checks`` checks rows without the server,
``staging`` and ``apply_rows`` write them. Does not know the computation of an app.
"""
