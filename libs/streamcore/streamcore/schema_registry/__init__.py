"""Schemas that a schema registry has, by their ids, and how a cut gets and keeps them.

``settings`` and ``client`` speak the REST protocol of Confluent's registry, which Karapace and Apicurio serve too;
``store`` keeps schemas in the checkpoint; ``lookups`` is the driver's part, ``waiting`` a task's. Exists so that a
record with a schema that nobody has seen before is decoded without a restart, and a replay decodes it in the same way.
Promises: only the driver asks the registry; an answer is in the checkpoint before a task sees it; without an answer
the cut waits. Does not know what is in a schema (``streamcore.decode.registry``).
"""
