"""Avro records: four framings, schemas with limits, a reference reader, and a reader of many records at once.

Both readers accept the same records with the same values. Memory and work have limits, whatever the bytes. There is no
access to a schema registry: schemas come from the settings or from the record.
"""
