"""The page of the functions of the rule language, from ``rulecore.language.function_reference``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rulecore.language.function_reference import (
    AGGREGATE_REFERENCE,
    FEATURE_AGGREGATE_REFERENCE,
    FUNCTION_REFERENCE,
    HIGHER_ORDER_REFERENCE,
    SESSION_AGGREGATE_REFERENCE,
    FunctionReference,
)
from rulecore.language.functions import ALIASES, FUNCTIONS
from tools.reference.markdown import head


def _usage(name: str) -> str:
    return FUNCTIONS[name].usage if name in FUNCTIONS else f"{name}(array, x -> expression of x)"


def page() -> str:
    """Return the page."""
    lines = head(
        "Functions of the rule language", "Every example is a condition that is TRUE; a test evaluates each of them."
    )
    for name, entry in sorted([*FUNCTION_REFERENCE.items(), *HIGHER_ORDER_REFERENCE.items()]):
        spellings = sorted(alias for alias, target in ALIASES.items() if target == name)
        lines += [f"## {name}", "", entry.summary, ""]
        lines += [f"- usage: `{_usage(name)}`", f"- result: {entry.result}", f"- NULL: {entry.nulls}"]
        lines += [f"- also spelt: {', '.join(f'`{alias}`' for alias in spellings)}"] if spellings else []
        lines += ["", "```sql", *entry.examples, "```", ""]
    lines += [Path(__file__).with_name("functions_tail.md").read_text(encoding="utf-8")]
    about = "Aggregates are for `having` and for the columns of sessions. Examples are over a column `amount`."
    lines += ["# Aggregates", "", about, "", *_aggregates(AGGREGATE_REFERENCE)]
    about = (
        "A session's columns may have these, too. There `count` of a condition is the number of events for which it is "
        "TRUE, as `count_if` of Spark."
    )
    lines += ["# Aggregates of sessions alone", "", about, "", *_aggregates(SESSION_AGGREGATE_REFERENCE)]
    about = "`of` of a rule's [features](../rules.md#features) takes all aggregates of `having`, and these."
    lines += ["# Aggregates of features alone", "", about, "", *_aggregates(FEATURE_AGGREGATE_REFERENCE)]
    return "\n".join(lines)


def _aggregates(reference: Mapping[str, FunctionReference]) -> Iterator[str]:
    for name, entry in sorted(reference.items()):
        yield from (f"## {name}", "", entry.summary, "", f"- result: {entry.result}", f"- NULL: {entry.nulls}", "")
        yield from ("```sql", *entry.examples, "```", "")
