"""A release: several changes that take effect together or not at all.

A small release is one control record under ``release/<name>``. A large one has its changes in parts that are published
before, each under ``staged/<digest>`` with the digest of its bytes, so that no record is larger than Kafka takes and a
part that was changed on the way is refused. Promises: no bytes make these functions raise anything but ``RuleError``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import orjson
from pydantic import Field, ValidationError, model_validator

from rulecore.documents.base import DocumentModel
from rulecore.documents.control_keys import RELEASE_KEY, STAGED_KEY
from rulecore.documents.loading import format_faults
from rulecore.documents.rule import Rule, canonical_json
from rulecore.documents.rule_kinds import RuleName
from rulecore.documents.scalars import MAX_TEXT
from rulecore.documents.yaml_reader import one_line
from rulecore.errors import DocumentError

MAX_CHANGES: Final = 20_000
PART_BYTES: Final = 40_000  # what one cut has to compile when the part comes


class RuleChange(DocumentModel):
    """Exactly one of the two: a version to put, or the id of a rule to delete."""

    rule: Annotated[Rule | None, Field(description="Version to publish.")] = None
    delete: Annotated[RuleName | None, Field(description="Id of a rule to delete.")] = None

    @model_validator(mode="after")
    def _one(self) -> RuleChange:
        if (self.rule is None) is (self.delete is None):
            raise ValueError("a change has either `rule`, a version, or `delete`, an id")
        return self


class RuleRelease(DocumentModel):
    """``parts`` are digests of staged parts, whose changes come before ``changes``, in the order of the parts."""

    release: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$"), Field(description="Name of the release.")]
    description: Annotated[
        str, Field(max_length=MAX_TEXT), Field(description="Why the release exists, for its readers.")
    ] = ""
    parts: Annotated[
        tuple[Annotated[str, Field(pattern="^[0-9a-f]{32}$")], ...],
        Field(strict=False, max_length=1_000),
        Field(description="Digests of staged parts; their changes come first."),
    ] = ()
    changes: Annotated[
        tuple[RuleChange, ...],
        Field(strict=False, max_length=MAX_CHANGES),
        Field(description="Changes that take effect together."),
    ] = ()


def digest_part(value: bytes) -> str:
    """Return the name of a part."""
    return hashlib.blake2b(value, digest_size=16).hexdigest()


def decode_release(value: bytes) -> RuleRelease:
    """Return the release of a control record; raise a one-line ``DocumentError`` if it holds none."""
    parsed = _json(value)
    if not isinstance(parsed, dict):
        raise DocumentError("a release is a JSON object")
    try:
        return RuleRelease.model_validate(parsed)
    except ValidationError as error:
        raise DocumentError(format_faults(error)) from error


def decode_part(value: bytes) -> tuple[RuleChange, ...]:
    """Return the changes of a part."""
    parsed = _json(value)
    if not isinstance(parsed, list) or len(parsed) > MAX_CHANGES:
        raise DocumentError(f"a part of a release is a JSON array of at most {MAX_CHANGES} changes")
    try:
        return tuple(RuleChange.model_validate(one) for one in parsed)
    except ValidationError as error:
        raise DocumentError(format_faults(error)) from error


def _json(value: bytes) -> object:
    try:
        parsed: object = orjson.loads(value)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"not JSON: {one_line(error)}") from error
    return parsed


def to_records(
    name: str, rules: Sequence[Rule], deleted: Sequence[str] = (), description: str = ""
) -> list[tuple[str, bytes]]:
    """Return keys and values of the control records that make a release, in the order of publication."""
    changes = [b'{"rule":' + canonical_json(rule) + b"}" for rule in rules]
    changes += [orjson.dumps({"delete": rule_id}) for rule_id in deleted]
    parts = list(_parts(changes))
    head: Mapping[str, object] = {"release": name, "description": description}
    if len(parts) <= 1:
        body = orjson.dumps({**head, "changes": []})[:-2] + b",".join(changes) + b"]}"
        return [(RELEASE_KEY + name, body)]
    staged = [(STAGED_KEY + digest_part(part), part) for part in parts]
    digests = [key.removeprefix(STAGED_KEY) for key, _ in staged]
    return [*staged, (RELEASE_KEY + name, orjson.dumps({**head, "parts": digests}))]


def _parts(changes: Sequence[bytes]) -> Iterator[bytes]:
    part: list[bytes] = []
    size = 0
    for change in changes:
        if part and size + len(change) > PART_BYTES:
            yield b"[" + b",".join(part) + b"]"
            part, size = [], 0
        part.append(change)
        size += len(change) + 1
    if part:
        yield b"[" + b",".join(part) + b"]"
