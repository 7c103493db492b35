"""Rules: their language, their model, and the kernel that evaluates them. Knows neither Spark nor Kafka."""
