"""The ETL app: events of several topics and formats into one clean model, and on to Kafka lanes and tables.

A settings document (``settings``) defines what the app does; ``plan`` checks the whole document before the app starts.
"""
