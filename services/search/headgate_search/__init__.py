"""Live search documents: a product's latest fields and how popular it is now, kept in an index.

Nothing here knows how an index is written; that is a sink's (``streamcore.sinks``). Other services are unknown too.
"""
