"""``x in list('name')`` and ``lookup('name', x)``: text, tree, JSON, normal form, rejections."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rulecore import language as lang
from rulecore.errors import ExpressionError
from rulecore.language import InList, ListType, Lookup, Scope
from rulecore.language.types import Value
from streamcore.schema import DOUBLE, LONG, STRING, TIMESTAMP, Kind, Type

MONEY = Type(Kind.DECIMAL, 12, 2)
COLUMNS = {"ip": STRING, "user_id": LONG, "amount": MONEY, "ratio": DOUBLE, "ts": TIMESTAMP, "list": LONG}
LISTS = {
    "tor_exits": ListType("tor_exits", STRING),
    "trusted-cards": ListType("trusted-cards", STRING),
    "limits": ListType("limits", LONG, MONEY),
    "prices": ListType("prices", Type(Kind.DECIMAL, 6, 1)),
    "owner_of": ListType("owner_of", STRING, LONG),
}
SCOPE = Scope(COLUMNS, lists=LISTS)
HAVING = Scope({"user_id": LONG}, aggregates=True, arguments=COLUMNS, lists=LISTS)

ACCEPTED = [
    "ip in list('tor_exits')",
    "ip not in list('trusted-cards')",
    "amount > lookup('limits', user_id)",
    "amount in list('prices') or user_id in list('prices')",
    "lower(ip) in list('tor_exits') and not (ip in list('trusted-cards') and amount > 1)",
    "lookup('limits', lookup('owner_of', ip)) is null",
    "'10.0.0.1' in list('tor_exits')",
    "(ip in list('tor_exits')) = (amount > 10)",
    "list > 5 and user_id in list('limits')",
    "coalesce(lookup('limits', user_id), 100) < amount",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_text_and_json_of_a_tree_read_back_to_the_same_tree(text: str) -> None:
    tree = lang.parse(text, SCOPE)
    assert lang.parse(lang.render(tree), SCOPE) == tree
    assert lang.adapter.validate_json(lang.adapter.dump_json(tree)) == tree
    normal = lang.normalize(tree)
    assert lang.normalize(normal) == normal
    assert lang.parse(lang.render(normal), SCOPE) == normal


def test_not_in_is_the_negation_of_in() -> None:
    tree = lang.parse("ip not in list('tor_exits')", SCOPE)
    assert isinstance(tree, lang.Not)
    assert tree.operand == InList(operand=lang.ColumnRef(name="ip", type=STRING), list="tor_exits", of=STRING)


def test_a_lookup_has_the_type_of_the_values() -> None:
    tree = lang.parse("lookup('limits', user_id)", SCOPE, expect=None)
    assert isinstance(tree, Lookup)
    assert tree.type == MONEY


def test_lists_returns_the_lists_of_an_expression() -> None:
    tree = lang.parse("ip in list('tor_exits') and amount > lookup('limits', user_id)", SCOPE)
    assert lang.lists(tree) == {"tor_exits", "limits"}


def test_the_fingerprint_depends_on_the_list_and_not_on_the_spelling() -> None:
    def fingerprint(text: str) -> str:
        return lang.fingerprint(lang.parse(text, SCOPE))

    assert fingerprint("ip in list('tor_exits')") != fingerprint("ip in list('trusted-cards')")
    assert fingerprint("ip in list('tor_exits') and amount > 1") == fingerprint(
        "1 < amount and (ip in list('tor_exits'))"
    )


REJECTED = [
    ("ip in list('tor_exit')", "'tor_exit'", "there is no list 'tor_exit'", "did you mean tor_exits?"),
    ("amount in list('tor_exits')", "amount", "holds string, this is decimal(12,2)", "text in quotes"),
    ("ip in list('limits')", "ip", "the list limits holds long, this is string", "a number"),
    ("ratio in list('limits')", "ratio", "this is double", "a double is not exact"),
    ("ts in list('limits')", "ts", "this is timestamp", "a number"),
    ("lookup('limits', ip) > 1", "ip", "holds long, this is string", "a number"),
    ("lookup('tor_exits', ip) > 1", "'tor_exits'", "has no values", "in list"),
    ("lookup('limits') > 1", "lookup('limits')", "lookup does not take 1 arguments", "lookup('name', x)"),
    ("ip in list(ip)", "ip", "the name of a list must be a constant", "its name in quotes"),
    ("ip in list('tor_exits', 'limits')", "list('tor_exits', 'limits')", "in takes constants", "list('name')"),
    ("ip in lower('a')", "lower('a')", "in takes constants in brackets, or a list", "list('name')"),
    ("ip in (list('tor_exits'))", "list", "list is accepted only after in", "write: x in list('name')"),
    ("list('tor_exits') = ip", "list", "list is accepted only after in", "write: x in list('name')"),
    ("ip in list('tor_exits') = true", "ip in list('tor_exits')", "needs brackets", ""),
    ("lookupp('limits', user_id) > 1", "lookupp", "unknown function", "did you mean lookup?"),
]


@pytest.mark.parametrize(("text", "underlined", "message", "hint"), REJECTED)
def test_an_error_has_a_location_and_a_hint(text: str, underlined: str, message: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        lang.parse(text, SCOPE)
    error = caught.value
    assert message in error.message
    assert hint in error.hint
    assert text[error.start : error.start + error.length] == underlined


def test_the_hint_says_that_there_are_no_lists() -> None:
    with pytest.raises(ExpressionError, match="there are no lists; publish it first"):
        lang.parse("ip in list('tor_exits')", Scope(COLUMNS))


def test_having_uses_a_list_only_inside_of_an_aggregate() -> None:
    lang.parse("sum(amount) > max(lookup('limits', user_id))", HAVING)
    with pytest.raises(ExpressionError, match="use it in an aggregate"):
        lang.parse("sum(amount) > lookup('limits', user_id)", HAVING)


def test_a_step_of_a_sequence_uses_a_list_as_an_event_does() -> None:
    text = "ip in list('tor_exits') and amount > lookup('limits', user_id)"
    assert lang.parse(text, SCOPE.with_steps(("before",))) == lang.parse(text, SCOPE)


def test_a_tree_from_json_is_checked_too() -> None:
    ill = '{"node":"in_list","list":"l","of":"long","operand":{"node":"column","name":"ip","type":"string"}}'
    with pytest.raises(ValueError, match="holds long"):
        lang.adapter.validate_json(ill)
    named = '{"node":"in_list","list":"a b","of":"string","operand":{"node":"column","name":"ip","type":"string"}}'
    with pytest.raises(ValueError, match="pattern"):
        lang.adapter.validate_json(named)


def test_null_and_a_missing_list_give_null() -> None:
    inside, outside = (lang.parse(f"ip {word}in list('tor_exits')", SCOPE) for word in ("", "not "))
    lists: dict[str, dict[Value, Value]] = {"tor_exits": dict.fromkeys(["1.1.1.1"])}
    for tree, answers in ((inside, (True, False)), (outside, (False, True))):
        assert lang.evaluate(tree, {"ip": "1.1.1.1"}, lists) is answers[0]
        assert lang.evaluate(tree, {"ip": "2.2.2.2"}, lists) is answers[1]
        assert lang.evaluate(tree, {"ip": None}, lists) is None
        assert lang.evaluate(tree, {"ip": "1.1.1.1"}) is None
    limit = lang.parse("lookup('limits', user_id)", SCOPE, expect=None)
    assert lang.evaluate(limit, {"user_id": 7}, {"limits": {7: Decimal("1.50")}}) == Decimal("1.50")
    assert lang.evaluate(limit, {"user_id": 8}, {"limits": {7: Decimal("1.50")}}) is None
    assert lang.evaluate(limit, {"user_id": 7}) is None
