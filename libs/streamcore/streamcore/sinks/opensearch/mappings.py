"""Mappings of the columns of a lane in OpenSearch: derived from their types, and checked against them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyarrow import types

from streamcore.sinks.opensearch.settings import IndexSpec, Json

_CONTAINERS = frozenset({"object", "nested", "flat_object"})
_TEXTS = frozenset({"keyword", "text", "wildcard", "match_only_text", "constant_keyword", "search_as_you_type"})
_DATES = frozenset({"date", "date_nanos"})


def mapping_properties(spec: IndexSpec, columns: pa.Schema) -> dict[str, Json]:
    """Return the mapping of each field of a document: that of the settings, or else that of the column's type."""
    return {
        field.name: spec.properties.get(field.name) or mapping_property(field.type)
        for field in columns
        if field.name != spec.deleted and not field.name.startswith("__")
    } | {name: mapping for name, mapping in spec.properties.items() if name not in columns.names}


def mapping_property(type_: pa.DataType) -> Json:
    """Return the mapping of a type.

    A decimal is text in a document, which keeps it exact, and a scaled number in the index.
    """
    if types.is_list(type_) or types.is_large_list(type_):
        return mapping_property(type_.value_type)
    if types.is_struct(type_):
        return {"properties": {field.name: mapping_property(field.type) for field in type_}}
    if types.is_decimal(type_):
        return {"type": "scaled_float", "scaling_factor": 10**type_.scale}
    if types.is_boolean(type_):
        return {"type": "boolean"}
    if types.is_integer(type_):
        return {"type": "long"}
    if types.is_floating(type_):
        return {"type": "double"}
    if types.is_temporal(type_):
        return {"type": "date"}
    return {"type": "keyword"}


def cannot_hold(type_: pa.DataType, mapping: Mapping[str, object]) -> bool:
    """Return whether OpenSearch rejects every value of a column of the type.

    False for text in a number field: some texts are numbers.
    """
    name = str(mapping.get("type", "object"))
    if types.is_list(type_) or types.is_large_list(type_):
        return cannot_hold(type_.value_type, mapping)
    if types.is_struct(type_):
        return name not in _CONTAINERS
    if name in _CONTAINERS:
        return True
    if types.is_boolean(type_):
        return name != "boolean" and name not in _TEXTS
    if types.is_timestamp(type_):
        return name not in _DATES and name not in _TEXTS
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        return name in {"boolean", "ip", "geo_point"}
    return False
