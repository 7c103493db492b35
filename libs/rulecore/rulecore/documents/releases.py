"""A release: several changes that take effect together or not at all.

A small release is one control record with the key ``release/<name>``. A large release has its changes in parts, which
are published before it, each with the key ``staged/<digest>`` of its bytes: no record is too large for Kafka, and a
part whose bytes were changed is rejected. Promises: no bytes make these functions raise anything but ``DocumentError``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import orjson
from pydantic import Field, ValidationError, model_validator

from rulecore.documents.base import DocumentModel
from rulecore.documents.control_keys import RELEASE_KEY, STAGED_KEY
from rulecore.documents.decision_policy import DecisionPolicy, DecisionPolicyName
from rulecore.documents.features import FeatureName
from rulecore.documents.loading import format_faults
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.rule import Rule, canonical_json
from rulecore.documents.rule_kinds import RuleName
from rulecore.documents.scalars import MAX_TEXT
from rulecore.documents.yaml_reader import one_line
from rulecore.errors import DocumentError

MAX_CHANGES: Final = 20_000
MAX_NAMED: Final = 1_000  # features, and decision policies
MAX_NAMED_BYTES: Final = 800_000
PART_BYTES: Final = 40_000  # bounds the rules that a cut compiles when it reads a part


class RuleChange(DocumentModel):
    """A version of a rule to publish, or the id of a rule to delete: exactly one of the two."""

    rule: Annotated[Rule | None, Field(description="Version to publish.")] = None
    delete: Annotated[RuleName | None, Field(description="Id of a rule to delete.")] = None

    @model_validator(mode="after")
    def _check_exactly_one(self) -> RuleChange:
        if (self.rule is None) is (self.delete is None):
            raise ValueError("a change has either `rule`, a version, or `delete`, an id")
        return self


class NamedChanges(DocumentModel):
    """Changes of published features and decision policies in a release. Features come before the rules that name them,
    policies after them, and deletions of both last."""

    features: Annotated[
        tuple[PublishedFeature, ...],
        Field(strict=False, max_length=MAX_NAMED),
        Field(description="Versions of features to publish, before the rules."),
    ] = ()
    decision_policies: Annotated[
        tuple[DecisionPolicy, ...],
        Field(strict=False, max_length=MAX_NAMED),
        Field(description="Versions of decision policies to publish, after the rules."),
    ] = ()
    delete_policies: Annotated[
        tuple[DecisionPolicyName, ...],
        Field(strict=False, max_length=MAX_NAMED),
        Field(description="Names of decision policies to delete."),
    ] = ()
    delete_features: Annotated[
        tuple[FeatureName, ...],
        Field(strict=False, max_length=MAX_NAMED),
        Field(description="Names of features to delete, after the rules that named them are changed."),
    ] = ()

    @property
    def count(self) -> int:
        """The number of changes."""
        deleted = len(self.delete_policies) + len(self.delete_features)
        return len(self.features) + len(self.decision_policies) + deleted


class RuleRelease(NamedChanges):
    """A release. The changes of ``parts``, in the order of the parts, come before ``changes``."""

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


#: No feature or policy changes.
NO_NAMED: Final = NamedChanges()


def find_repeated(rules: Sequence[str], named: NamedChanges) -> str | None:
    """Return a rule, feature or decision policy that a release publishes or deletes twice, such as
    ``feature usual``; None without one. ``rules``: the ids of those that it publishes and deletes."""
    features = [*(one.feature for one in named.features), *named.delete_features]
    policies = [*(one.decision_policy for one in named.decision_policies), *named.delete_policies]
    for kind, names in (("rule", rules), ("feature", features), ("decision policy", policies)):
        if len(set(names)) < len(names):
            return f"{kind} {Counter(names).most_common(1)[0][0]}"
    return None


def digest_part(value: bytes) -> str:
    """Return the digest that names a part: BLAKE2b of its bytes, 32 hexadecimal digits."""
    return hashlib.blake2b(value, digest_size=16).hexdigest()


def decode_release(value: bytes) -> RuleRelease:
    """Return the release of a control record; raise a one-line ``DocumentError`` if it holds none."""
    parsed = _parse_json(value)
    if not isinstance(parsed, dict):
        raise DocumentError("a release is a JSON object")
    try:
        return RuleRelease.model_validate(parsed)
    except ValidationError as error:
        raise DocumentError(format_faults(error, RuleRelease)) from error


def decode_part(value: bytes) -> tuple[RuleChange, ...]:
    """Return the changes of a part; raise a one-line ``DocumentError`` if it holds none."""
    parsed = _parse_json(value)
    if not isinstance(parsed, list) or len(parsed) > MAX_CHANGES:
        raise DocumentError(f"a part of a release is a JSON array of at most {MAX_CHANGES} changes")
    try:
        return tuple(RuleChange.model_validate(one) for one in parsed)
    except ValidationError as error:
        raise DocumentError(format_faults(error, RuleChange)) from error


def _parse_json(value: bytes) -> object:
    try:
        parsed: object = orjson.loads(value)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"not JSON: {one_line(error)}") from error
    return parsed


def to_records(
    name: str,
    rules: Sequence[Rule],
    deleted: Sequence[str] = (),
    description: str = "",
    named: NamedChanges = NO_NAMED,
) -> list[tuple[str, bytes]]:
    """Return keys and values of the control records of a release, in the order of publication: the release is last.

    Changes of rules of at most ``PART_BYTES`` together are in the release itself, others in parts. Raises
    ``DocumentError`` if ``named`` is too large for a record of Kafka.
    """
    changes = [b'{"rule":' + canonical_json(rule) + b"}" for rule in rules]
    changes += [orjson.dumps({"delete": rule_id}) for rule_id in deleted]
    parts = list(_pack_parts(changes))
    own = named.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if (size := len(orjson.dumps(own))) > MAX_NAMED_BYTES:
        raise DocumentError(
            f"features and policies have {size:,} bytes, at most {MAX_NAMED_BYTES:,}; make two releases"
        )
    head: Mapping[str, object] = {"release": name, "description": description, **own}
    if len(parts) <= 1:
        body = orjson.dumps({**head, "changes": []})[:-2] + b",".join(changes) + b"]}"
        return [(RELEASE_KEY + name, body)]
    staged = [(STAGED_KEY + digest_part(part), part) for part in parts]
    digests = [key.removeprefix(STAGED_KEY) for key, _ in staged]
    return [*staged, (RELEASE_KEY + name, orjson.dumps({**head, "parts": digests}))]


def _pack_parts(changes: Sequence[bytes]) -> Iterator[bytes]:
    """Yield JSON arrays of at most ``PART_BYTES`` with the changes in order; a larger change is alone in one."""
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
