"""Decodes records that name their schema by an id of a schema registry.

``decoder`` divides the records of a batch among their schemas, and decodes those of one schema with a decoder of its
type. Exists so that a stream takes every schema that fits it, also one that is registered while the app runs. Promises:
a schema that does not fit rejects its records, with its id, the field and both types. Does not ask the registry:
``streamcore.schema_registry`` finds schemas.
"""
