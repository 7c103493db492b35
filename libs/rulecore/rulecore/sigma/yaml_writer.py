"""Writes the document of a rule as YAML: entries in a fixed order, long conditions on several lines.

Promises: the output reads back as the same document, whatever characters its texts have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from rulecore.documents.rule import Rule
from rulecore.documents.yaml_reader import Json

_ORDER: Final = (
    *("id", "version", "owner", "description", "tags", "on", "where", "group_by", "within", "having", "emit"),
    *("sequence", "skip", "expect", "score", "then", "suppress", "mode", "effective", "budget", "tests"),
)
#: Text that needs no quotes anywhere, unless it is one of ``_WORDS``.
_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.+/-]*(?: [A-Za-z0-9_.+/()-]+)*\Z")
#: Text that needs no quotes outside of ``{...}`` and ``[...]``, unless it contains ``_SYNTAX``.
_PLAIN: Final = re.compile(r"[A-Za-z_(][ -~]*(?<! )\Z")
_SYNTAX: Final = re.compile(r":( |\Z)| #")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DURATION: Final = re.compile(r"[0-9]+(ms|s|m|h|d)\Z")
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_MAX_LINE: Final = 100


def write_rule(rule: Rule, comments: Sequence[str] = ()) -> str:
    """Return the text of a rule's file, below comments of one line each; entries with their default are left out."""
    document = rule.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return write_document({name: document[name] for name in _ORDER if name in document}, comments)


def write_document(document: Mapping[str, Json], comments: Sequence[str]) -> str:
    """Return the text of a document, below comments of one line each."""
    head = [f"# {_printable(line)}" for line in comments]
    return "\n".join([*head, *_mapping(document, "")]) + "\n"


def _mapping(value: Mapping[str, Json], indent: str) -> list[str]:
    lines = []
    for name, one in value.items():
        lines += _entry(f"{indent}{_name(name)}:", one, indent)
    return lines


def _entry(head: str, value: Json, indent: str) -> list[str]:
    flow = _flow(value)
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS and not _SYNTAX.search(value):
        return [f"{head} {value}"]
    if isinstance(value, str) and "\n" in value and _fits_block(value):
        return [f"{head} |-", *(f"{indent}  {line}" for line in value.split("\n"))]
    if isinstance(value, dict) and value and len(flow) > _MAX_LINE:
        return [head, *_mapping(value, indent + "  ")]
    if isinstance(value, list) and value and (len(flow) > _MAX_LINE or any(isinstance(one, dict) for one in value)):
        return [head, *(line for one in value for line in _item(one, indent + "  "))]
    return [f"{head} {flow}"]


def _item(value: Json, indent: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{indent}- {_flow(value)}"]
    lines = _mapping(value, indent + "  ")
    return [f"{indent}- {lines[0].lstrip(' ')}", *lines[1:]]


def _flow(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_name(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(one) for one in value) + "]"
    return _scalar(value)


def _name(name: str) -> str:
    """Return the name of an entry. ``on`` gets no quotes: in YAML 1.2, which Headgate reads, it is text."""
    return name if _NAME.match(name) else _quote(name)


def _scalar(value: Json) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, str):
        return repr(value)
    bare = _DURATION.match(value) or (_BARE.match(value) and value.lower() not in _WORDS)
    return value if bare else _quote(value)


def _quote(value: str) -> str:
    """Return the text in single quotes if every character shows, else in double quotes with escapes."""
    if value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return '"' + "".join(_escape(c) for c in value) + '"'


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or f"\\U{ord(character):08X}"


def _fits_block(value: str) -> bool:
    """Return whether a block (``|-``) keeps the text: printable lines, none of them empty or with blanks at an end."""
    lines = value.split("\n")
    return all(line.isprintable() and line and line == line.strip() for line in lines)


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else " " for c in line)
