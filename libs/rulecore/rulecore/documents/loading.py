"""Reads rules, decision policies and features from YAML, which people write, and from JSON, which the control topic
carries.

Promises: a YAML document becomes either a ``Rule``, a ``DecisionPolicy``, a ``PublishedFeature`` or at least one
``Problem`` with file, line and column; a JSON record becomes one of them or raises ``DocumentError``; nothing else is
raised. An entry that is written twice is rejected, and so are control characters and characters that reverse the
direction of text (``rulecore.printable``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import orjson
from pydantic import ValidationError

from rulecore.documents.base import DocumentModel
from rulecore.documents.decision_policy import DECISION_POLICY, DecisionPolicy
from rulecore.documents.published_feature import FEATURE, PublishedFeature
from rulecore.documents.rule import Rule
from rulecore.documents.scalars import abbreviate
from rulecore.documents.yaml_files import read_file, yaml_files
from rulecore.documents.yaml_reader import (
    LoadLimits,
    PathKey,
    Problem,
    SourceLocation,
    YamlDocument,
    dotted_path,
    one_line,
    parse_path,
    read_yaml,
)
from rulecore.errors import DocumentError
from rulecore.printable import UNREADABLE, in_one_line
from streamcore.settings import UNKNOWN_ENTRY, unknown_entry


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """A document and its rule; ``rule`` is None exactly when there are problems."""

    document: YamlDocument
    rule: Rule | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A document and its decision policy; ``policy`` is None exactly when there are problems."""

    document: YamlDocument
    policy: DecisionPolicy | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedFeature:
    """A document and its published feature; ``feature`` is None exactly when there are problems."""

    document: YamlDocument
    feature: PublishedFeature | None
    problems: tuple[Problem, ...] = ()


def load_text(
    text: str, file: str = "<text>", limits: LoadLimits | None = None
) -> tuple[list[LoadedRule], list[Problem]]:
    """Return the rules of a text, and the problems that belong to no document. ``file``: its name in problems."""
    documents, problems = read_yaml(text, file, limits)
    return _load_rules(documents), problems


def load_all_text(
    text: str, file: str = "<text>", limits: LoadLimits | None = None
) -> tuple[list[LoadedRule], list[LoadedFeature], list[LoadedPolicy], list[Problem]]:
    """Return the rules, published features and decision policies of a text, and the problems of ``load_text``."""
    documents, problems = read_yaml(text, file, limits)
    features = [one for one in documents if _is_named(one, FEATURE)]
    policies = [one for one in documents if _is_named(one, DECISION_POLICY)]
    return (
        _load_rules(documents),
        [LoadedFeature(*_load_named(one, FEATURE, PublishedFeature)) for one in features],
        [LoadedPolicy(*_load_named(one, DECISION_POLICY, DecisionPolicy)) for one in policies],
        problems,
    )


def load_path(
    path: Path, limits: LoadLimits | None = None, naming: Collection[str] | None = None
) -> tuple[list[LoadedRule], list[Problem]]:
    """Return the rules of a file, or of all ``*.yaml`` and ``*.yml`` files below a directory, in order of their paths.
    Decision policies and features among them are left out.

    ``naming``: if given, only rules of files whose text contains one of these texts are returned.
    """
    found, problems = _read_path(path, limits, naming)
    return [_load(document) for document in found if _is_rule(document)], problems


def load_policies(path: Path, limits: LoadLimits | None = None) -> list[LoadedPolicy]:
    """Return the decision policies of a file, or of all YAML files below a directory, in order of their paths. What
    cannot be read is a problem of ``load_path``."""
    found = (_load_named(one, DECISION_POLICY, DecisionPolicy) for one in _read_named(path, limits, DECISION_POLICY))
    return [LoadedPolicy(*one) for one in found]


def load_features(path: Path, limits: LoadLimits | None = None) -> list[LoadedFeature]:
    """Return the published features of a file, or of all YAML files below a directory, in order of their paths. What
    cannot be read is a problem of ``load_path``."""
    return [LoadedFeature(*_load_named(one, FEATURE, PublishedFeature)) for one in _read_named(path, limits, FEATURE)]


def _load_rules(documents: Sequence[YamlDocument]) -> list[LoadedRule]:
    return [_load(document) for document in documents if document.value is not None and _is_rule(document)]


def _is_rule(document: YamlDocument) -> bool:
    return not any(_is_named(document, entry) for entry in (DECISION_POLICY, FEATURE))


def _is_named(document: YamlDocument, entry: str) -> bool:
    """Return whether this entry names the document. A rule has an id, and perhaps a misspelt entry."""
    return isinstance(document.value, dict) and entry in document.value and "id" not in document.value


def _read_named(path: Path, limits: LoadLimits | None, entry: str) -> Iterator[YamlDocument]:
    """Yield the documents with this entry, which names what they are."""
    for document in _read_path(path, limits, {entry})[0]:
        if _is_named(document, entry):
            yield document


def _read_path(
    path: Path, limits: LoadLimits | None, naming: Collection[str] | None
) -> tuple[list[YamlDocument], list[Problem]]:
    """Return the documents of the files of a path, and the problems that belong to no document."""
    limits = limits or LoadLimits()
    found: list[YamlDocument] = []
    problems: list[Problem] = []
    files = yaml_files(path)
    if len(files) > limits.files:
        return [], [Problem(str(path), SourceLocation(1, 1), "", f"more than {limits.files} files")]
    for file in files:
        documents, faults = read_file(file, limits, naming)
        found += documents
        problems += faults
    return found, problems


def _load(document: YamlDocument) -> LoadedRule:
    if not isinstance(document.value, dict):
        return LoadedRule(document, None, (Problem(document.file, document.place(()), "", "a rule is a mapping"),))
    name = document.value.get("id")
    rule_id = name if isinstance(name, str) else None
    try:
        rule = Rule.model_validate(document.value)
        faults = list(_find_unreadable(rule))
    except (ValidationError, RecursionError) as error:
        rule = None
        faults = _list_faults(error, Rule) if isinstance(error, ValidationError) else [((), "nested too deep")]
    problems = _locate(document, faults, rule_id)
    return LoadedRule(document, None if problems else rule, problems)


_Named = TypeVar("_Named", DecisionPolicy, PublishedFeature)


def _load_named(
    document: YamlDocument, entry: str, model: type[_Named]
) -> tuple[YamlDocument, _Named | None, tuple[Problem, ...]]:
    """Return the document, what it holds, and its problems. ``entry``: the one with its name."""
    assert isinstance(document.value, dict), "it has an entry"
    name = document.value[entry]
    found: _Named | None = None
    try:
        found = model.model_validate(document.value)
        faults = list(_find_unreadable(found))
    except ValidationError as error:
        faults = _list_faults(error, model)
    except RecursionError:
        faults = [((), "nested too deep")]
    problems = _locate(document, faults, name if isinstance(name, str) else None)
    return document, None if problems else found, problems


def _locate(document: YamlDocument, faults: Sequence[tuple[PathKey, str]], name: str | None) -> tuple[Problem, ...]:
    """Return the faults of a document as problems with their places, each once."""
    places = [
        (_place(document, path, m), dotted_path(document.known_prefix(path)), _with_entry_name(path, document, m))
        for path, m in (_at_entry(document, *fault) for fault in faults)
    ]
    return tuple(dict.fromkeys(Problem(document.file, *found, name) for found in places))


def _at_entry(document: YamlDocument, path: PathKey, message: str) -> tuple[PathKey, str]:
    """Return a fault ``name: text`` as ``text`` at the entry of that name, or path, if the document has it."""
    name, colon, rest = message.partition(": ")
    inner = (*path, *parse_path(name))
    return (inner, rest) if colon and inner in document.places else (path, message)


def _place(document: YamlDocument, path: PathKey, message: str) -> SourceLocation:
    """Return where a fault is: an unknown entry is at its name, another one at its value."""
    return document.name_place(path) if message.startswith(UNKNOWN_ENTRY) else document.place(path)


def _find_unreadable(document: Rule | DecisionPolicy | PublishedFeature) -> Iterator[tuple[PathKey, str]]:
    """Yield path and message of each text with an ``UNREADABLE`` character. The parser checks expressions itself."""
    for path, text in _texts(document):
        if found := UNREADABLE.search(text):
            yield path, f"character U+{ord(found[0]):04X} is not accepted; remove it"


def _texts(document: Rule | DecisionPolicy | PublishedFeature) -> list[tuple[PathKey, str]]:
    """Return the texts of a document that are no names and no expressions, with their paths."""
    texts: list[tuple[PathKey, str]] = [(("owner",), document.owner), (("description",), document.description)]
    if isinstance(document, PublishedFeature):
        return texts
    texts += [(("tests", number, "name"), test.name) for number, test in enumerate(document.tests)]
    if isinstance(document, DecisionPolicy):
        return texts
    rule = document
    return [
        *texts,
        *((("tags", number), tag) for number, tag in enumerate(rule.tags)),
        (("then", "outcome"), rule.then.outcome or ""),
        (("then", "message"), rule.then.message),
    ]


def _with_entry_name(path: PathKey, document: YamlDocument, message: str) -> str:
    """Return the message; "is missing" gets the name of the entry, since the problem's path ends above it."""
    missing = bool(path) and path[-1] not in document.known_prefix(path)[-1:] and message == "is missing"
    return f"{path[-1]} {message}" if missing else message


def _list_faults(error: ValidationError, model: type[DocumentModel]) -> list[tuple[PathKey, str]]:
    """Return path and message of each fault, up to ``_MOST_FAULTS``.

    A message ``name: text`` about the whole rule, where ``name`` is an entry, becomes ``text`` at that entry.
    """
    faults: list[tuple[PathKey, str]] = []
    reported = error.errors(include_url=False, include_input=False)[:_MOST_FAULTS]
    for details in reported:
        path = tuple(details["loc"])
        # pydantic leaves out the items that are at fault, and then reports that there are too few.
        repeated = details["type"] == "too_short" and any(
            d["loc"][: len(path)] == path for d in reported if d is not details
        )
        if repeated or path[:3] == _KEYWORD:
            continue
        is_unknown = details["type"] == "extra_forbidden"
        message = unknown_entry(model, path) if is_unknown else simplify_message(details["type"], details["msg"])
        path = _without_tags(path)
        name, colon, rest = message.partition(": ")
        about_entry = bool(colon) and not path and name in model.model_fields
        faults.append(((name,), rest) if about_entry else (path, message))
    return faults


#: Faults of a document that are shown at once. To find the name that an unknown entry is like takes 70 us.
_MOST_FAULTS = 200
#: The branch of a union that a mapping cannot be: `of: seen` is its only other form.
_KEYWORD = ("expect", "of", "str")


def _without_tags(path: PathKey) -> PathKey:
    """Remove the parts that pydantic adds to a path for the kind of a window, a step, a feature or of keys."""
    if path[:1] == ("within",):
        return ("within", *path[2:])
    tagged = path[:1] in (("sequence",), ("features",)) or path[:2] == ("expect", "of")
    return (*path[:2], *path[3:]) if tagged else path


def simplify_message(kind: str, message: str) -> str:
    """Return the message in terms of YAML, without the names of Python's types."""
    text = message.removeprefix("Value error, ").removeprefix("Input ").removesuffix(" after validation")
    return _MESSAGES.get(kind, _CONTAINER.sub("should have", text))


_MESSAGES = {
    "missing": "is missing",
    "string_type": "should be text",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "tuple_type": "should be a list",
    "dict_type": "should be a mapping",
    "model_type": "should be a mapping",
}
_CONTAINER = re.compile("^(String|Tuple|List|Dictionary) should have")


def decode_record(value: bytes, max_bytes: int) -> Rule:
    """Return the rule of a control record; raise a one-line ``DocumentError`` if it holds none."""
    return _decode(value, max_bytes, Rule)


def decode_policy(value: bytes, max_bytes: int) -> DecisionPolicy:
    """Return the decision policy of a control record; raise a one-line ``DocumentError`` if it holds none."""
    return _decode(value, max_bytes, DecisionPolicy)


def decode_feature(value: bytes, max_bytes: int) -> PublishedFeature:
    """Return the published feature of a control record; raise a one-line ``DocumentError`` if it holds none."""
    return _decode(value, max_bytes, PublishedFeature)


_Document = TypeVar("_Document", bound=DocumentModel)
#: What a document is, for messages.
_KINDS: Final = {Rule: "rule", DecisionPolicy: "decision policy", PublishedFeature: "feature"}


def _decode(value: bytes, max_bytes: int, model: type[_Document]) -> _Document:
    if len(value) > max_bytes:
        raise DocumentError(
            f"the record has {len(value)} bytes, at most {max_bytes} are read; move many values into a list"
        )
    try:
        parsed = orjson.loads(value)
        if not isinstance(parsed, dict):
            raise DocumentError(f"a {_KINDS[model]} is a JSON object")
        # orjson accepts a name that occurs twice; json reports all pairs
        json.loads(value, object_pairs_hook=_reject_repeated_names, parse_int=str, parse_float=str)
        document = model.model_validate(parsed)
    except ValidationError as error:
        raise _document_error(_list_faults(error, model)) from error
    except ValueError as error:
        raise DocumentError(f"not JSON: {one_line(error)}") from error
    except RecursionError as error:
        raise DocumentError("nested too deep") from error
    assert isinstance(document, Rule | DecisionPolicy | PublishedFeature), "one of the three"
    if faults := list(_find_unreadable(document)):
        raise _document_error(faults)
    return document


def _document_error(faults: Sequence[tuple[PathKey, str]]) -> DocumentError:
    messages = [f"{dotted_path(path)}: {message}" if path else message for path, message in faults]
    more = f" (and {len(messages) - _MAX_MESSAGES} more)" if len(messages) > _MAX_MESSAGES else ""
    return DocumentError(in_one_line("; ".join(messages[:_MAX_MESSAGES]))[:_MAX_CHARACTERS] + more)


def _reject_repeated_names(pairs: Sequence[tuple[str, object]]) -> None:
    """Raise ``DocumentError`` for a name that occurs twice: parsers of JSON differ in which of the two counts."""
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise DocumentError(f"{abbreviate(name)} is written twice")
        names.add(name)


def format_faults(error: ValidationError, model: type[DocumentModel]) -> str:
    """Return the first faults of a document of a model, and the number of the others, in one line."""
    return str(_document_error(_list_faults(error, model)))


_MAX_MESSAGES = 5
_MAX_CHARACTERS = 1_000
