"""The pages of the cookbook, from the rules in ``examples/cookbook``: an index, and a page for each of its folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rulecore.documents.loading import load_path
from rulecore.documents.rule import Rule, RuleKind
from rulecore.streams import stream_names
from tools.reference.markdown import head, plain, section, table

_ROOT = Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / "examples" / "cookbook"
_DOMAINS = {
    "payments": "Payments",
    "logins": "Logins",
    "accounts": "Accounts: logins and payments together",
    "network": "Networks and hosts",
    "orders": "Orders",
    "devices": "Devices",
}
_KINDS = {
    RuleKind.EVENT: "one event",
    RuleKind.FEATURE: "an event and the past of its key",
    RuleKind.WINDOW: "a window",
    RuleKind.SEQUENCE: "a sequence",
    RuleKind.ABSENCE: "a missing event",
    RuleKind.SCORE: "a score over rules",
}


def pages() -> Mapping[str, Callable[[], str]]:
    """Return what makes each page, by its name in the folder ``docs/cookbook``."""
    domains = {f"{name}.md": partial(_domain_page, name, title) for name, title in _DOMAINS.items()}
    return {"README.md": _index, **domains}


def _index() -> str:
    lines = head(
        "Cookbook of rules", (Path(__file__).with_name("cookbook_head.md")).read_text(encoding="utf-8").rstrip()
    )
    for name, title in _DOMAINS.items():
        rows = [
            (f"[{rule.id}]({name}.md#{rule.id})", plain(rule.description), _KINDS[rule.kind])
            for rule, _ in _rules(name)
        ]
        lines += section(title) + table(("rule", "looks for", "by"), rows)
    return "\n".join(lines)


def _domain_page(name: str, title: str) -> str:
    rules = _rules(name)
    streams = sorted({stream for rule, _ in rules for stream in stream_names(rule.on)})
    links = " and ".join(f"[{stream}](../../examples/cookbook/streams/{stream}.yaml)" for stream in streams)
    lines = head(title, f"The rules are on {links}. [All rules](README.md). A record, with a value for every field:")
    for stream in streams:
        record = json.loads((_FOLDER / "samples" / f"{stream}.jsonl").read_text(encoding="utf-8"))
        members = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
        lines += ["```json", f"{{\n{members}\n}}", "```", ""]
    for rule, text in rules:
        what, false_alarms, tune = rule.description.split("\n\n")
        file = f"../../examples/cookbook/rules/{name}/{rule.id}.yaml"
        lines += section(rule.id, what)
        lines += ["```yaml", "on: " + text.partition("\non: ")[2].partition("\ntests:")[0], "```", ""]
        lines += [_in_bold(false_alarms), "", _in_bold(tune), ""]
        lines += [f"[With its tests]({file}): {'; '.join(test.name for test in rule.tests)}.", ""]
    return "\n".join(lines)


def _rules(domain: str) -> Sequence[tuple[Rule, str]]:
    """Return the rules of a folder with the texts of their files. Raise ``ValueError`` if one is no rule."""
    loaded, problems = load_path(_FOLDER / "rules" / domain)
    if wrong := [*problems, *(problem for one in loaded for problem in one.problems)]:
        raise ValueError(wrong[0].render())
    return [(one.rule, Path(one.document.file).read_text(encoding="utf-8")) for one in loaded if one.rule is not None]


def _in_bold(paragraph: str) -> str:
    """Return the paragraph with the words before its colon in bold."""
    label, _, rest = paragraph.partition(": ")
    return f"**{label}.** {rest[:1].upper()}{rest[1:]}"
