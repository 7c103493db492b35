"""The development set-up on one machine: a Java runtime, pinned jars and real servers (``servers``).

Everything is fetched once into the user's cache and verified by SHA-256. Nothing here is used in a cluster, where
the image holds the jars and Kafka is an external one.
"""
