"""The settings documents of services, without a cluster: checked, tried, tested, explained, compared and drawn.

``headgate etl``, ``headgate sessions`` and ``headgate search`` share it: a ``ServiceDefinition`` has the form of the
settings and builds the app, which runs in this process with the code that runs on Spark. Promises: nothing is written
to Kafka, to a sink or to the checkpoint, except by ``headgate etl run`` and its like. Limits: a sample is one cut of
one partition, so what depends on the order of arrival across partitions is not seen.
"""
