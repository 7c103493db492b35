"""Where rows of a lane end that is no Kafka topic: PostgreSQL, OpenSearch, Delta and
Iceberg tables, Parquet files, webhooks.

``sink`` is the contract; each system has a package of its own, the only one that imports its client. A sink works on
the driver, gets the rows of a cut as one table a lane, and states its guarantee. Does not know Spark and what an
app computes.
"""
