"""The stream engine: exactly-once cuts of Kafka topics through keyed kernels on Spark."""
