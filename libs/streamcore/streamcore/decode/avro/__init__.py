"""Avro records: four framings, schemas with limits, a reference reader, and a reader of many records at once.

Promises that both readers accept the same records with the same values, and that hostile bytes cost no more than the
limits allow. Knows no registry: schemas come from the settings or from the record.
"""
