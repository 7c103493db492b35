"""Decodes Protobuf messages by the text of their schema, with neither generated code nor a compiler of schemas.

``schema`` parses the language of ``.proto`` files; ``schema_match`` finds the fields of a stream in a message type;
``reader`` is the reference, message by message; ``decoder`` decodes a batch. Exists so that a schema that a registry
has just got can be used at once. Promises: work and memory are bounded by the size of a record; fields that the stream
does not declare are skipped. Does not know registries, nor groups, which Protobuf has given up.
"""
