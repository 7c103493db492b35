"""From the bytes of a record to typed columns, or to a rejected record with the reason.

The records that a stream accepts are defined once, per record and in plain Python (``streamcore.decode.scalar``): slow
and obviously right. ``JsonDecoder`` is the fast one: a regular expression built from the stream's schema *vouches* for
the records whose text can only mean what a columnar JSON parser reads out of it; only those go to the parser, all
others to the reference. So the fast path accepts the same records with the same values, and one bad record costs one
record. The package knows neither Spark nor Kafka, nor any clock: "now" comes in with the batch.
"""
