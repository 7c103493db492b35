"""The JSON Schema (draft 2020-12) of rules, decision policies and features, for completion and checks in editors.

Promises: every document that the loader accepts is valid. That of a rule expresses the conditions between entries of
each kind of rule; a schema cannot express comparisons of two values, such as a step's ``within`` that exceeds the
sequence's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.rule import Rule
from rulecore.documents.rule_kinds import MAX_SIGNALS, StepContiguity

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_Schema = dict[str, Any]
_SPAN: Final[_Schema] = {
    "type": "string",
    "pattern": "^[1-9][0-9]{0,11}(ms|s|m|h|d)$",
    "description": "Longest time from the first event of a sequence to its last.",
    "examples": ["10m", "1h"],
}
_FEATURE_SPANS: Final = [{"$ref": f"#/$defs/{name}"} for name in ("TumblingSpec", "SlidingSpec")]
_GROUPED: Final[_Schema] = {"required": ["group_by"], "properties": {"group_by": {"minItems": 1}}}


def rule_json_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of a rule's document, for editors (``# yaml-language-server: $schema=...``)."""
    schema: _Schema = {"$schema": DRAFT, **Rule.model_json_schema(mode="validation"), "title": "Headgate rule"}
    _adapt_definitions(schema["$defs"])
    return {**schema, "allOf": [_kind_conditions(), *_common_conditions()]}


def policy_json_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of a decision policy's document, for editors."""
    schema: _Schema = DecisionPolicy.model_json_schema(mode="validation")
    return {"$schema": DRAFT, **schema, "title": "Headgate decision policy"}


def feature_json_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of a published feature's document, for editors."""
    schema: _Schema = PublishedFeature.model_json_schema(mode="validation")
    schema["properties"]["within"]["oneOf"] = _FEATURE_SPANS
    return {"$schema": DRAFT, **schema, "title": "Headgate feature"}


def _adapt_definitions(definitions: _Schema) -> None:
    """Replace the definitions of entries with shorthands: validators accept these, and pydantic's schema lacks them."""
    definitions["SequenceSpan"] = _SPAN
    expectation = definitions["EventExpectation"]
    expectation["properties"]["of"]["anyOf"] = [{"$ref": "#/$defs/ListedKeys"}, {"const": "seen"}]
    listed = {"required": ["of"], "properties": {"of": {"type": "object"}}}
    expectation["allOf"] = [{"if": listed, "then": _absent("forget")}]
    points = definitions["Score"]["properties"]["of"]
    pattern = next(iter(points["patternProperties"]))
    mapping = {key: points.pop(key) for key in ("type", "patternProperties", "minLength", "maxLength") if key in points}
    limits = {"minProperties": mapping.pop("minLength", 1), "maxProperties": mapping.pop("maxLength", MAX_SIGNALS)}
    names = {"type": "array", "items": {"type": "string", "pattern": pattern}, "minItems": 1}
    points["anyOf"] = [names, {**mapping, **limits, "additionalProperties": False}]
    definitions["Feature"]["properties"]["within"]["oneOf"] = _FEATURE_SPANS
    definitions["Effective"]["anyOf"] = [_present("from"), _present("to")]
    _adapt_steps(definitions)


def _adapt_steps(definitions: _Schema) -> None:
    """Add ``{next: NAME}`` and the like, and ``at_least`` and ``at_most``."""
    step, times = definitions["SequenceStep"], definitions["StepTimes"]
    step["required"].remove("step")
    name = step["properties"]["step"]
    step["properties"] |= {word.value: {**name, "title": word.value} for word in StepContiguity}
    step["oneOf"] = [{"required": [word]} for word in ("step", *(word.value for word in StepContiguity))]
    step["dependentSchemas"] = {word.value: _absent("contiguity") for word in StepContiguity}
    times["properties"] |= {"at_least": times["properties"]["min"], "at_most": times["properties"]["max"]}
    times["required"].remove("min")
    times["oneOf"] = [{"required": ["min"]}, {"required": ["at_least"]}, _only("at_most", "min", "at_least")]
    times["not"] = {"required": ["max", "at_most"]}


def _only(name: str, *others: str) -> _Schema:
    """Return the schema of a document with an entry and without others."""
    return {"required": [name], "not": {"anyOf": [{"required": [other]} for other in others]}}


def _kind_conditions() -> _Schema:
    """Return the conditions of each kind of rule, chosen by the entries that a rule has, as ``Rule.kind`` does."""
    within = {"required": ["within"], "properties": {"within": {"type": "string"}}}
    window = {"required": ["within", "having"], "properties": {"within": {"type": "object"}, "having": _NONEMPTY_TEXT}}
    sequence = {"allOf": [_absent("having", "expect", "score"), _NO_FEATURES, _GROUPED, within]}
    absence = {"allOf": [_absent("where", "having", "within", "score"), _NO_FEATURES, _GROUPED]}
    score = {"allOf": [_absent("where", "having", "within", "expect"), _NO_FEATURES, _GROUPED]}
    feature = {"allOf": [_absent("having", "within"), _GROUPED, _present("where")]}
    event = {
        "allOf": [_present("where"), {"if": _present("suppress"), "then": {"properties": {"suppress": _BY_COLUMNS}}}]
    }
    windowed = {"anyOf": [_GROUPED, _present("within"), _present("having")]}
    chain: _Schema = event
    for condition, conclusion in (
        (windowed, {"allOf": [_GROUPED, window]}),
        (_FEATURES, feature),
        (_present("score"), score),
        (_present("expect"), absence),
        (_present("sequence"), sequence),
    ):
        chain = {"if": condition, "then": conclusion, "else": chain}
    return chain


def _common_conditions() -> list[_Schema]:
    """Return the conditions on rules of all kinds.

    ``skip`` is for sequences and ``emit: final`` for windows; a sequence does not begin with a ``without``;
    ``group_by`` names no column twice.
    """
    window = {
        "allOf": [_absent("sequence", "expect", "score"), _NO_FEATURES, {"properties": {"within": {"type": "object"}}}]
    }
    final = {"required": ["emit"], "properties": {"emit": {"const": "final"}}}
    skips = {"required": ["skip"], "properties": {"skip": {"not": {"const": "past_last"}}}}
    return [
        {"if": final, "then": {"allOf": [window, _present("within")]}},
        {"if": skips, "then": _present("sequence")},
        {
            "properties": {
                "sequence": {"prefixItems": [{"not": {"required": ["without"]}}]},
                "group_by": {"uniqueItems": True},
            }
        },
    ]


_FEATURES: Final[_Schema] = {"required": ["features"], "properties": {"features": {"minItems": 1}}}
_NO_FEATURES: Final[_Schema] = {"properties": {"features": {"maxItems": 0}}}
_NONEMPTY_TEXT: Final[_Schema] = {"type": "string", "minLength": 1}
_BY_COLUMNS: Final[_Schema] = {"required": ["by"], "properties": {"by": {"minItems": 1}}}


def _present(name: str) -> _Schema:
    """Return the schema of a document with this entry, not null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def _absent(*names: str) -> _Schema:
    """Return the schema of a document without these entries, or with null in them."""
    return {"properties": {name: {"type": "null"} for name in names}}
