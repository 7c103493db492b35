"""The engine on Spark: the one package that imports pyspark.

``session`` builds a Spark session with the settings that the engine needs, ``query`` turns an ``App`` into one
streaming query, ``processor`` is stage 2 inside ``transformWithState``, ``runner`` owns a running app: lease, epoch,
exactly-once output, metrics and the exact stop.
"""
