"""Turns the bytes of records into typed columns, or into rejected records with the reasons.

The reference defines the records that a stream accepts, and their values: it decodes one record at a time in plain
Python (``streamcore.decode.scalar`` and the scalar reader of each format), and is slow. The decoders (``JsonDecoder``,
``AvroDecoder``, ``LineDecoder``) decode many records together in columns, and pass every record of which they are not
sure to the reference. So they accept the same records with the same values, and an invalid record affects no other
record. The package depends on neither Spark nor Kafka, and reads no clock: each batch has its time.
"""
