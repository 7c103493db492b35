"""Live search documents: a product's latest fields and how popular it is now, kept in an index.

The OpenSearch sink (``streamcore.sinks.opensearch``) writes the index. No module here imports another service.
"""
