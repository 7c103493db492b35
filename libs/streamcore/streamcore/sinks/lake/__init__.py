"""The common parts of the sinks of Parquet files, Delta and Iceberg tables: checks of columns, and the shape of rows.

``columns`` compares a lane's columns with a table's; ``lanes`` joins the results of lanes; ``options`` reads options
with secrets; ``rows`` puts rows in a table's columns and rejects those that do not fit; ``table_sink`` is the
protocol of Delta and Iceberg. Knows no client library.
"""
