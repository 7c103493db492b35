"""The ETL app: events of several topics and formats into one clean model, and on to Kafka lanes and tables.

A settings document (``settings``) defines its work; the document is checked whole before anything starts (``plan``).
"""
