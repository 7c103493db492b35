"""The JSON Schema (draft 2020-12) of a list document, for completion and checks in editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rulecore.documents.json_schema import DRAFT
from rulecore.lists.records import ListHead

_TYPE: Final = {"type": "string", "pattern": r"^(boolean|long|double|string|timestamp|decimal\([0-9]+, *[0-9]+\))$"}
_FILE: Final = {"type": "string", "description": "CSV file in the folder of the document that holds the entries."}


def list_json_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of a list's document; its entries are in the document or in a CSV file."""
    schema: dict[str, Any] = ListHead.model_json_schema(mode="validation")
    fields = schema["properties"]
    del fields["parts"]
    fields["entries"].pop("maxItems", None)
    for name, kind in (("of", _TYPE), ("value", {"anyOf": [_TYPE, {"type": "null"}]})):
        fields[name] = {"description": fields[name]["description"], **kind}
    fields["file"] = dict(_FILE)
    return {
        "$schema": DRAFT,
        **schema,
        "title": "Headgate list",
        "oneOf": [{"required": ["entries"]}, {"required": ["file"]}],
    }
