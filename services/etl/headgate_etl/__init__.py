"""The ETL app: events of several topics and formats into one clean model, and on to Kafka lanes and tables.

What it does is data, a settings document (``settings``), which is checked whole before anything starts (``plan``).
"""
