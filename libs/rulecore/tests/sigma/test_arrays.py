"""Sigma rules on fields that are arrays, and on members of objects: an element that matches is enough."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rulecore.documents.yaml_reader import read_yaml
from rulecore.sigma import FieldMap, ImportedRule, import_rules
from rulecore.testing.in_process import run_in_process
from rulecore.testing.rule_tests import complete
from streamcore.schema import StreamSchema

TRAIL = StreamSchema.parse(
    {
        "name": "trail",
        "event_time": "at",
        "keys": [["user"]],
        "fields": {
            "at": "timestamp not null",
            "user": "string",
            "eventName": "string",
            "requestParameters": "struct<containerDefinitions: array<struct<command: array<string>, name: string>>, "
            "ports: array<long>, `dry-run`: boolean, user: string, "
            "more: map<string, string>>",
            "tags": {"type": "array<string>", "from": "responseElements.tags"},
        },
    }
)
COMMANDS = "requestParameters.containerDefinitions.command"


def imported(selection: str, condition: str = "s") -> ImportedRule:
    text = (
        f"title: A\nlevel: low\nlogsource: {{product: aws}}\ndetection:\n  s: {selection}\n  condition: {condition}\n"
    )
    documents, problems = read_yaml(text, "a.yml")
    assert not problems
    report = import_rules(documents, FieldMap(TRAIL))
    assert not report.rejected, report.rejected[0].problem.render()
    return report.imported[0]


Event = Mapping[str, Any]


def commands(event: Event) -> list[str]:
    """Return the lower-case words of all commands."""
    containers = (event["requestParameters"] or {}).get("containerDefinitions") or []
    return [word.lower() for one in containers for word in one["command"] or [] if word is not None]


def texts(event: Event) -> list[str]:
    """Return the lower-case texts inside of the parameters."""
    parameters = event["requestParameters"] or {}
    names = [one["name"] for one in parameters.get("containerDefinitions") or []]
    names += [one.lower() for one in (parameters.get("more") or {}).values() if one is not None]
    return [*commands(event), *names, *([parameters["user"].lower()] if parameters.get("user") else [])]


def ports(event: Event) -> list[int]:
    return [one for one in (event["requestParameters"] or {}).get("ports") or [] if one is not None]


def tags(event: Event) -> list[str]:
    return [one.lower() for one in event["tags"] or [] if one is not None]


RULES: dict[str, tuple[str, str, Callable[[Event], bool]]] = {
    "contains": (f"{{{COMMANDS}|contains: curl}}", "s", lambda e: any("curl" in c for c in commands(e))),
    "one of": ("{tags: [a, B]}", "s", lambda e: any(t in ("a", "b") for t in tags(e))),
    "all": ("{tags|all: [a, B]}", "s", lambda e: {"a", "b"} <= {*tags(e)}),
    "wildcard": ("{tags|contains|all: [x, y]}", "s", lambda e: all(any(c in t for t in tags(e)) for c in "xy")),
    "not": ("{tags: a}", "not s", lambda e: "a" not in tags(e)),
    "neq": ("{tags|neq: a}", "s", lambda e: "a" not in tags(e)),
    "number": ("{requestParameters.ports|gt: 5}", "s", lambda e: any(p > 5 for p in ports(e))),
    "numbers": ("{requestParameters.ports: [22, 3389]}", "s", lambda e: any(p in (22, 3389) for p in ports(e))),
    "null": ("{tags: null}", "s", lambda e: e["tags"] is None),
    "null or": ("{tags: [null, a]}", "s", lambda e: e["tags"] is None or "a" in tags(e)),
    "exists": ("{tags|exists: true}", "s", lambda e: e["tags"] is not None),
    "re": (f"{{{COMMANDS}|re: '^/bin'}}", "s", lambda e: any(c.startswith("/bin") for c in commands(e))),
    "object": ("{requestParameters|contains: CURL}", "s", lambda e: any("curl" in t for t in texts(e))),
    "object all": (
        "{requestParameters|contains|all: [l, x]}",
        "s",
        lambda e: all(any(c in t for t in texts(e)) for c in "lx"),
    ),
    "object re": ("{requestParameters|re: '^/bin'}", "not s", lambda e: not any(t[:4] == "/bin" for t in texts(e))),
    "capitals": (
        "{requestparameters.DRY-run: true}",
        "s",
        lambda e: bool((e["requestParameters"] or {}).get("dry-run")),
    ),
    "member": ("{requestParameters.dry-run: true}", "s", lambda e: bool((e["requestParameters"] or {}).get("dry-run"))),
}


def an_event(draw: random.Random) -> dict[str, Any]:
    def some(values: list[Any]) -> list[Any] | None:
        return None if draw.random() < 0.1 else [draw.choice([*values, None]) for _ in range(draw.randrange(4))]

    containers = [{"command": some(["CURL", "/bin/sh", "ls", "curl x"]), "name": "n"} for _ in range(draw.randrange(3))]
    request = {
        "containerDefinitions": draw.choice([None, containers]),
        "ports": some([1, 22, 3389]),
        "dry-run": draw.choice([True, False, None]),
        "user": draw.choice(["Lx", "y", None]),
        "more": draw.choice([None, {"a": "X", "b": None}, {"c": "curl"}]),
    }
    return {
        "user": "u",
        "eventName": "RunTask",
        "requestParameters": draw.choice([None, request, request]),
        "responseElements": {"tags": some(["a", "A", "b", "xy", "y", "X"])},
    }


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", RULES)
def test_an_element_that_matches_is_enough(name: str) -> None:
    selection, condition, matches = RULES[name]
    rule, draw = imported(selection, condition).rule, random.Random(name)
    sent = [an_event(draw) for _ in range(150)]
    flat = [{**one, "tags": one["responseElements"]["tags"]} for one in sent]
    wanted = [n for n, event in enumerate(flat) if matches(event)]
    rows = [{k: v for k, v in event.items() if k != "responseElements"} for event in flat]
    alerts = run_in_process([rule], {"trail": TRAIL}, {"trail": complete(rows, TRAIL)})
    assert [one["source"]["offset"] for one in alerts] == wanted  # type: ignore[call-overload, index]
    assert 0 < len(wanted) < len(sent)


def test_the_import_notes_that_one_element_is_enough() -> None:
    (note,) = [one for one in imported("{tags: a}").notes if "array" in one]
    assert note == "tags is an array: one element that matches is enough, which Sigma leaves open"
    assert imported("{tags: a}").rule.where == "any(tags, e1 -> lower(e1) = 'a')"
    (note,) = [one for one in imported("{requestParameters|contains: a}").notes if "object" in one]
    assert note == "requestParameters is an object: a text in one of its members is enough, which Sigma leaves open"
    assert imported("{tags|exists: true}").rule.where == "tags is not null"
