"""Avro records: four framings, schemas with limits, a reference reader, and the steps of a compiled walk.

The walk (``streamcore.decode.walk.binary``) gives the values of the reference, or leaves a record to it. Memory and
work have limits, whatever the bytes. There is no access to a schema registry: schemas come from the settings or from
the record.
"""
