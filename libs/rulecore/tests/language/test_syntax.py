"""Tokens and precedence: how operators bind without brackets, and what separates two tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulecore.language import Scope, parse
from rulecore.language.parsing.grammar import GrammarError, SyntaxNode, parse_grammar
from rulecore.language.parsing.tokenizer import TokenKind, tokenize
from streamcore.schema import BOOLEAN, LONG, STRING

SCOPE = Scope({"a": LONG, "b": LONG, "c": LONG, "s": STRING, "p": BOOLEAN, "q": BOOLEAN, "r": BOOLEAN})


@pytest.mark.parametrize(
    ("text", "bracketed"),
    [
        ("p or q and r", "p or (q and r)"),
        ("p and q or r", "(p and q) or r"),
        ("not p and q", "(not p) and q"),
        ("not a = b or p", "(not (a = b)) or p"),
        ("not not p", "not (not p)"),
        ("a + b * c > 1", "(a + (b * c)) > 1"),
        ("a - b - c = 0", "((a - b) - c) = 0"),
        ("a * b % c = 0", "((a * b) % c) = 0"),
        ("-a * b < - -c", "((-a) * b) < (-(-c))"),
        ("+a = +(b)", "a = b"),
        ("s || 'x' = 'yx' and p", "((s || 'x') = 'yx') and p"),
        ("a between b + 1 and c * 2 and p", "(a between (b + 1) and (c * 2)) and p"),
        ("not a in (1, 2) and p", "(not (a in (1, 2))) and p"),
        ("a + 1 is null and p", "((a + 1) is null) and p"),
        ("case when p or q then a + 1 else b end = c", "(case when (p or q) then (a + 1) else b end) = c"),
    ],
)
def test_operators_of_higher_precedence_bind_without_brackets(text: str, bracketed: str) -> None:
    assert parse(text, SCOPE) == parse(bracketed, SCOPE)


def test_a_node_covers_its_items_and_its_brackets() -> None:
    items = ["operand", "not", "in", "(", "operand", ",", "operand", ")", "and", "(", "not", "operand", ")"]
    member, other = SyntaxNode("operand", (), 4, 4), SyntaxNode("operand", (), 6, 6)
    listed = SyntaxNode("in", (SyntaxNode("operand", (), 0, 0), member, other), 0, 7, negated=True)
    inner = SyntaxNode("not", (SyntaxNode("operand", (), 11, 11),), 9, 12, bracketed=True)
    assert parse_grammar(items, 20) == SyntaxNode("and", (listed, inner), 0, 12)


@pytest.mark.parametrize(
    ("items", "index"),
    [
        (["operand", "="], 2),
        (["operand", "between", "operand"], 3),
        (["case", "when", "operand", "end"], 3),
        (["function", "(", "operand"], 3),
        (["operand", "then", "operand"], 1),
    ],
)
def test_a_grammar_error_has_the_index_of_the_faulty_item(items: list[str], index: int) -> None:
    with pytest.raises(GrammarError) as caught:
        parse_grammar(items, 20)
    assert caught.value.index == index


def test_each_operator_of_a_chain_adds_a_level() -> None:
    chain = ["operand", *["+", "operand"] * 20]
    assert parse_grammar(chain, 20).kind == "+"
    with pytest.raises(GrammarError, match="nested more than 19 deep"):
        parse_grammar(chain, 19)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("'it\\'s' \"x\" r'\\' `a``b` 1.5e-3", ["string", "string", "raw", "quoted", "number"]),
        ("a<=>b", ["other"] * 3),
        ("1e3+1", ["number", "other", "number"]),
        ("a -- b\n/* c */ = /* d", ["other", "other"]),
        ("5L 1_0 0xff", ["number", "other", "other"]),
        ("'a''b'", ["string", "string"]),
    ],
)
def test_the_tokenizer_produces_the_tokens_of_spark(text: str, kinds: list[str]) -> None:
    assert [token.kind.value for token in tokenize(text)] == kinds


@given(st.text(alphabet="ab1.eE_+-*/<=>!|:'\"`\\r( \n\té²", max_size=20))
def test_white_space_and_comments_separate_tokens(text: str) -> None:
    try:
        tokens = tokenize(text)
    except ValueError:
        assert {"'", '"', "`"} & set(text)
        return
    end = 0
    for token in tokens:
        assert token.start >= end
        gap = text[end : token.start].strip()
        assert not gap or gap.startswith(("--", "/*"))
        assert token.kind is TokenKind.QUOTED or token.text == text[token.start : token.end]
        end = token.end
    assert not (rest := text[end:].strip()) or rest.startswith(("--", "/*"))
