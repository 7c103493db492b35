"""Real servers on this machine as child processes: Kafka, PostgreSQL, OpenSearch.

Promises: ``start`` returns when the server accepts clients, and a server that runs already is used. Does not know
topics, tables or indexes.
"""
