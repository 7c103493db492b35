"""Stream documents from samples: writes one for records that somebody has, and says what a document makes of them.

The package reads samples of JSON from files, and those of JSON, Avro and a schema registry from topics.
"""
