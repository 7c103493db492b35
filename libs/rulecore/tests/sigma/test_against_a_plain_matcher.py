"""An imported rule matches the same events as a plain implementation of Sigma: two truth values, wildcards, no case.

The matcher here evaluates generated selections and conditions in Python and shares no code with the import.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.documents.yaml_reader import read_yaml
from rulecore.language import Scope, evaluate, parse
from rulecore.language.types import Value
from rulecore.sigma import FieldMap, import_rules
from streamcore.schema import StreamSchema

SCHEMA = StreamSchema.parse(
    {
        "name": "s",
        "event_time": "ts",
        "keys": [["a"]],
        "fields": {
            "ts": "timestamp not null",
            "a": "string",
            "b": "string",
            "n": "long",
            "f": "boolean",
            "ip": "string",
        },
    }
)
ALPHABET = "aAbB*?\\\\%_-/ é.'1"
TEXTS = st.text(ALPHABET, max_size=6) | st.sampled_from(["aab", "AB", "-a", " /b", "YWI=", "a b", "1"])
ADDRESSES = st.sampled_from(["10.0.0.1", "10.1.2.3", "192.168.0.1", "::1", "fe80::2", "x", ""])
ROWS = st.fixed_dictionaries(
    {
        "ts": st.just(0),
        "a": st.none() | TEXTS,
        "b": st.none() | TEXTS,
        "n": st.none() | st.integers(-3, 3),
        "f": st.none() | st.booleans(),
        "ip": st.none() | ADDRESSES,
    }
)
DASHES = "-/\u2013\u2014\u2015"


# --- the plain matcher ------------------------------------------------------------------------------------------------


def tokens(text: str) -> list[tuple[str, bool]]:
    """Return the characters of a text, and whether each is a wildcard."""
    found: list[tuple[str, bool]] = []
    while text:
        if len(text) > 1 and text[0] == "\\" and text[1] in "\\*?":
            found.append((text[1], False))
            text = text[2:]
        else:
            found.append((text[0], text[0] in "*?"))
            text = text[1:]
    return found


def to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def text_matches(value: Any, text: str, modifiers: tuple[str, ...]) -> bool:
    if "base64" in modifiers:
        plain = "".join(c for c, _ in tokens(to_text(value)))
        parts = [(c, False) for c in base64.b64encode(plain.encode()).decode()]
    else:
        parts = tokens(to_text(value))
    regex = ""
    for i, (c, wild) in enumerate(parts):
        before, after = (parts[i - 1][0] if i else " "), (parts[i + 1] if i + 1 < len(parts) else (" ", False))
        word = (before.isalnum() or before == "_") and not (i and parts[i - 1][1])
        begins = (after[0].isalnum() or after[0] == "_") and not after[1]
        if wild:
            regex += ".*" if c == "*" else "."
        elif "windash" in modifiers and c in DASHES and begins and not word:
            regex += f"[{DASHES[1:]}-]"
        else:
            regex += re.escape(c)
    if "contains" in modifiers or "endswith" in modifiers:
        regex = ".*" + regex
    if "contains" in modifiers or "startswith" in modifiers:
        regex += ".*"
    flags = re.DOTALL if "cased" in modifiers else re.DOTALL | re.IGNORECASE
    return re.fullmatch(regex, text, flags) is not None


def value_matches(field: str, value: Any, row: Mapping[str, Any], modifiers: tuple[str, ...]) -> bool:
    found = row[field]
    if "exists" in modifiers:
        return (found is not None) is value
    if value is None:
        return found is None
    if found is None:
        return False
    if "re" in modifiers:
        return re.search(value, found, re.IGNORECASE if "i" in modifiers else 0) is not None
    if "cidr" in modifiers:
        try:
            return ipaddress.ip_address(found) in ipaddress.ip_network(value)
        except ValueError:
            return False
    if "fieldref" in modifiers:
        other = row[value]
        return other is not None and (found == other if "cased" in modifiers else found.lower() == other.lower())
    compare: dict[str, Callable[[int, int], bool]] = {
        "lt": lambda x, y: x < y,
        "lte": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "gte": lambda x, y: x >= y,
    }
    for name, holds in compare.items():
        if name in modifiers:
            return holds(found, value)
    return text_matches(value, found, modifiers) if isinstance(found, str) else found == value


def item_matches(key: str, value: Any, row: Mapping[str, Any]) -> bool:
    field, *modifiers = key.split("|")
    values = value if isinstance(value, list) else [value]
    results = [value_matches(field, one, row, tuple(modifiers)) for one in values]
    found = all(results) if "all" in modifiers else any(results)
    return not found if "neq" in modifiers else found


def selection_matches(selection: Any, row: Mapping[str, Any]) -> bool:
    if isinstance(selection, list):
        return any(selection_matches(one, row) for one in selection)
    return all(item_matches(key, value, row) for key, value in selection.items())


# --- generated rules ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    text: str
    holds: Callable[[Callable[[str], bool]], bool]


NAMES = ("sel_a", "sel_b", "filter_1", "_hidden")


def leaves() -> st.SearchStrategy[Condition]:
    def quantified(word: str, pattern: str, names: tuple[str, ...]) -> Condition:
        how = all if word == "all" else any
        return Condition(f"{word} of {pattern}", lambda known: how([known(n) for n in names]))

    def single(name: str) -> Condition:
        return Condition(name, lambda known: known(name))

    named = [single(name) for name in NAMES]
    words = [
        quantified(word, pattern, names)
        for word in ("1", "all")
        for pattern, names in [("them", NAMES[:3]), ("sel_*", NAMES[:2]), ("*", NAMES), ("*_1", NAMES[2:3])]
    ]
    return st.sampled_from([*named, *words])


def compose(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    def join(word: str, parts: list[Condition]) -> Condition:
        how = all if word == "and" else any
        text = f" {word} ".join(f"({p.text})" if " " in p.text else p.text for p in parts)
        return Condition(text, lambda known: how([p.holds(known) for p in parts]))

    negated = inner.map(lambda p: Condition(f"not ({p.text})", lambda known: not p.holds(known)))
    return negated | st.builds(join, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3))


CONDITIONS = st.recursive(leaves(), compose, max_leaves=5)


def one_or_more(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return values | st.lists(values, min_size=1, max_size=3)


PLACES = st.sampled_from(["", "|contains", "|startswith", "|endswith"])
ENDS = st.sampled_from(["", "", "|all", "|neq", "|cased", "|all|cased"])
FIELDS = st.sampled_from(["a", "b"])
PLAIN = TEXTS.filter(lambda t: not any(wild for _, wild in tokens(t)) and t)


def pairs(key: st.SearchStrategy[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(key, one_or_more(values))


ITEMS = st.one_of(
    pairs(st.builds("{}{}{}".format, FIELDS, PLACES, ENDS), TEXTS | st.integers(0, 2)),
    pairs(st.builds("{}{}".format, FIELDS, st.sampled_from(["", "|neq", "|all"])), st.none() | TEXTS),
    pairs(st.builds("{}|windash{}{}".format, FIELDS, PLACES, ENDS), TEXTS),
    pairs(st.builds("{}|base64{}".format, FIELDS, PLACES), PLAIN),
    pairs(st.builds("{}|re{}".format, FIELDS, st.sampled_from(["", "|i"])), st.sampled_from(["^a", "b$", "a+b?", "."])),
    pairs(st.just("a|fieldref") | st.just("a|fieldref|cased"), st.just("b")),
    pairs(st.sampled_from(["a|exists", "n|exists", "f|exists"]), st.booleans()),
    pairs(st.sampled_from(["n", "n|neq", "n|lt", "n|gte", "n|gt", "n|lte", "n|all"]), st.integers(-3, 3)),
    pairs(st.sampled_from(["f", "f|neq"]), st.booleans()),
    pairs(st.sampled_from(["ip|cidr", "ip|cidr|neq"]), st.sampled_from(["10.0.0.0/8", "::/64", "192.168.0.1/32"])),
)
MAPS = st.lists(ITEMS, min_size=1, max_size=3).map(dict)
SELECTIONS = MAPS | st.lists(MAPS, min_size=1, max_size=3)
DETECTIONS = st.fixed_dictionaries(dict.fromkeys(NAMES, SELECTIONS))


@settings(max_examples=300, deadline=None)
@given(DETECTIONS, CONDITIONS, st.lists(ROWS, min_size=1, max_size=8))
def test_an_imported_rule_matches_the_events_that_sigma_matches(
    detection: dict[str, Any], condition: Condition, rows: list[dict[str, Value]]
) -> None:
    sigma = {"title": "t", "logsource": {"product": "x"}, "detection": {**detection, "condition": condition.text}}
    documents, problems = read_yaml(json.dumps(sigma), "t.yml")
    assert not problems
    report = import_rules(documents, FieldMap(SCHEMA))
    if report.rejected:
        assert "longer than" in report.rejected[0].problem.message or "nodes" in report.rejected[0].problem.message
        return
    where = report.imported[0].rule.where
    assert where is not None
    expr = parse(where, Scope.of_event(SCHEMA))
    for row in rows:
        known = {name: selection_matches(selection, row) for name, selection in detection.items()}
        expected = condition.holds(known.__getitem__)
        assert (evaluate(expr, row) is True) is expected, (where, row)
