"""The engine: runs the cuts of an app through decoding, shuffle, keyed shards and output.

Exists so that the same code runs under Spark and in this process. Promises that the output of a cut is a pure function
of its records, its clock and the state before it, so a cut that runs again writes the same. Knows neither Spark nor how
a cluster is reached: Kafka, sinks and blob stores come in as values and protocols.
"""
