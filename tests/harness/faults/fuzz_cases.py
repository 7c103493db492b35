"""Inputs for the parsers of rules, made from a seed: by grammar, and by damaging bytes of a corpus. For the sandbox.

Every input ends in a value or in the documented error; a value must also survive what is done with it next: a tree is
rendered, read back, normalized, planned and evaluated, a rule is stored and read back. A case's word says the target
and which of the two it was. The number in a case's name is all that its input follows from.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import cast
from zoneinfo import ZoneInfo, available_timezones

from pydantic import ValidationError

from rulecore.check import check_rules
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents import message_template as message
from rulecore.documents.loading import decode_record, load_text
from rulecore.documents.rule import canonical_json
from rulecore.documents.yaml_reader import read_yaml
from rulecore.errors import ExpressionError, RuleError
from rulecore.language import Scope, adapter, aggregates, evaluate, fingerprint, normalize, parse, render
from rulecore.matching.access_plan import plan_access
from rulecore.printable import UNREADABLE
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord
from streamcore.schema import BOOLEAN, STRING, StreamSchema
from streamcore.timestamps import is_zone, load_zone
from tests.harness.faults.hostile_cases import PLACES, rule, windowed_rule
from tests.harness.faults.hostile_texts import JSON, TEXTS, YAML
from tests.harness.oracles.expressions import COLUMNS, LETTERS, Generator

Case = Callable[[], str]
WHERE = Scope(COLUMNS)
HAVING = Scope({"s": STRING}, aggregates=True, arguments=COLUMNS)
LIMITS = RuleLimits()
ROOT = Path(__file__).parents[3]
STREAMS = {
    path.stem: StreamSchema.parse(cast(dict[str, object], read_yaml(path.read_text(), path.name)[0][0].value))
    for path in sorted((ROOT / "streams").glob("*.yaml"))
}
_BRACES = ("{", "}", "{0}", "{user_id!r}", "{user_id:>99}", "{a.b}", "{a[0]}", "{}")
_NAMES = (
    *("tumbling", "sliding", "every", "session", "count", "from", "to", "for", "by", "of", "list", "within", "limit"),
    *("where", "step", "without", "times", "message", "severity", "canary", "matches", "events"),
)
_WORDS = (
    "a b amount x s t ts ok `end` user_id quantity 1 2.5 1e3 9223372036854775807 'x' 'a%' r'\\d' ( ) , + - * / % = <> "
    "< <= <=> || and or not in between like rlike is null true false case when then else end escape distinct interval "
    "timestamp '2011-01-01' count( sum( lower( if( coalesce( concat( date_trunc( regexp_like( substr( . ; -- /* */ [ ] "
    "{ } :: -> => @ # $ \\ ' \" ` select from over cast( exists( \u00a0 \x00 \u202e 😀 union as"
)
_MARKS = (
    ": - ? , [ ] { } # & * ! | > ' \" % @ ` --- ... << ~ null .nan .inf 0x1f !!python/name:os.system &a *a \\n \\t "
    "\\u202e \\ud800 \\0 where: having: then: {message: }} {{ {user_id} {0} 1e400 99999999999999999999 -0 :: \ufeff "
    "\u2028 \x85"
)
WORDS, MARKS = _WORDS.split(" "), _MARKS.split(" ")
#: More than what is needed for one thing after the other is damage of no interest.
MOST_BYTES = 70_000


_ZONES: list[ZoneInfo] = []


def warm_up() -> None:
    """Make some of each case, then all that is damaged later is in memory; and the system's time zones, which a text
    may name."""
    _ZONES.extend(load_zone(name) for name in available_timezones() if is_zone(name))
    for number in range(3 * len(TARGETS)):
        _case(0, number)
    evaluate(parse("regexp_like(s, 'a')", WHERE), {"s": "a"})


def cases(given: object) -> Iterator[tuple[str, Case]]:
    """Yield the cases. ``given``: seed, first number and count."""
    seed, first, count = cast(tuple[int, int, int], given)
    for number in range(first, first + count):
        yield f"{seed}/{number}", partial(_case, seed, number)


def _case(seed: int, number: int) -> str:
    name, target = list(TARGETS.items())[number % len(TARGETS)]
    return f"{name}: {target(Random(f'{seed}/{number}'))}"


@cache
def _rule_texts() -> list[bytes]:
    """Return the corpus: shipped rules, those of every kind, and the hostile ones; in the same order everywhere."""
    shipped = [path.read_bytes() for path in sorted((ROOT / "rules").rglob("*.yaml"))]
    kinds = [json.dumps(make("amount > 1"), indent=1).encode() for make in PLACES.values()]
    return [*shipped, *shipped, *kinds, *(one.text.encode("utf-8", "surrogatepass")[:5_000] for one in YAML)]


def _shipped_documents() -> list[object]:
    texts = [path.read_text() for path in sorted((ROOT / "rules").rglob("*.yaml"))]
    return [document.value for text in texts for document in read_yaml(text, "")[0]]


@cache
def _records() -> list[bytes]:
    shipped = [json.dumps(value).encode() for value in _shipped_documents()]
    found = [json.dumps(make("amount > 1")).encode() for make in PLACES.values()]
    return [*shipped, *found, *(one.text.encode()[:5_000] for one in JSON)]


# Damage.


def _damage(random: Random, corpus: list[bytes], words: list[str]) -> bytes:
    """Return a text of the corpus with one to eight changes."""
    data = bytearray(random.choice(corpus))
    for _ in range(random.choice([1, 1, 1, 2, 3, 8])):
        start = random.randrange(len(data) + 1)
        end = min(len(data), start + random.choice([0, 1, 1, 2, 8, 40]))
        match random.randrange(7):
            case 0:
                data[start:end] = random.randbytes(random.randrange(4))
            case 1:
                data[start:end] = b""
            case 2:
                data[start:end] = random.choice(words).encode("utf-8", "surrogatepass")
            case 3:
                data[start:start] = data[start:end] * random.choice([1, 1, 2, 500])
            case 4:
                other = random.choice(corpus)
                at = random.randrange(len(other) + 1)
                data[start:end] = other[at : at + random.choice([5, 50, 500])]
            case 5:
                if start < len(data):
                    data[start] ^= 1 << random.randrange(8)
            case 6:
                piece = random.choice(words).encode("utf-8", "surrogatepass")
                data[start:start] = piece * random.choice([1, 1, 2, 1_000])
        del data[MOST_BYTES:]
    return bytes(data)


def _text(random: Random) -> str:
    """Return an expression: words of the language, a sound one, the same damaged, or one deeply nested."""
    kind = random.randrange(6)
    if kind == 0:
        return " ".join(random.choices(WORDS, k=random.randrange(40)))
    if kind == 1:
        return "".join(random.choices(LETTERS + "()<>=,.;`", k=random.randrange(60)))
    if kind == 2:
        units = ["(", "not ", "- ", "case when ", "lower(", "a + ", "ok and ", "a in (", "`", "'", "a between "]
        last = random.choice(["ok", "a", "1", "", "s)"])
        return random.choice(units) * random.choice([1, 5, 33, 300, 2_000]) + last
    sound = render(Generator(random.getrandbits(60)).any_expression())
    if kind == 3:
        return sound
    corpus = [sound.encode(), random.choice(TEXTS).text[:3_000].encode()][: 6 - kind]
    return _damage(random, corpus, WORDS).decode("utf-8", "replace")


# Targets: each gives "value" or "rejected"; everything that is raised is a finding.


def _expression(random: Random) -> str:
    scope, text = random.choice([WHERE, WHERE, HAVING]), _text(random)
    try:
        tree = parse(text, scope, expect=random.choice([BOOLEAN, None]))
    except ExpressionError as error:
        shown = error.render()
        assert "^" in shown
        assert len(shown) < 40_000
        assert not UNREADABLE.search(shown)
        assert "\n" not in str(error)
        assert error.line >= 1
        return "rejected"
    again = parse(render(tree), scope, expect=None)
    assert again == tree
    normal = normalize(tree)
    assert normalize(normal) == normal
    assert adapter.validate_json(adapter.dump_json(tree)) == tree
    assert len(fingerprint(tree)) == 32
    if tree.type == BOOLEAN and not aggregates(tree):
        assert len(plan_access(normal).entries) <= 16
    if not aggregates(tree):
        row = Generator(random.getrandbits(60)).row()
        assert repr(evaluate(tree, row)) == repr(evaluate(normal, row))
    return "value"


def _file(random: Random) -> str:
    return _load(_damage(random, _rule_texts(), MARKS).decode("utf-8", random.choice(["replace", "surrogateescape"])))


def _load(text: str) -> str:
    loaded, problems = load_text(text, "f.yaml")
    report = check_rules(loaded, STREAMS, LIMITS)
    found = [*problems, *report.problems]
    for problem in found[:50]:
        shown = problem.render()
        assert len(shown) < 100_000
        assert not UNREADABLE.search(shown)
        assert problem.detail or "\n" not in shown
        assert problem.place.line >= 1
        assert problem.place.column >= 1
    assert all(one.rule is not None or one.problems for one in loaded)
    return "value" if report.rules and not found else "rejected"


def _grammar_file(random: Random) -> str:
    """Return a rule whose entries are put together from what the entries of rules may be, and from what they may
    not."""
    return _load(json.dumps(_document(random), ensure_ascii=random.random() < 0.5))


def _document(random: Random) -> dict[str, object]:
    place = random.choice(list(PLACES))
    texts = [_text(random), random.choice(TEXTS).text, "user_id", "1h", "0001-01-01T00:00:00+14:00", "50%", ""]
    document = random.choice([PLACES[place](random.choice(texts)), rule(), windowed_rule()])
    for _ in range(random.randrange(4)):
        name = random.choice([*document, "effective", "budget", "tags", "mode", "emit", "sequence", "score", "expect"])
        document[name] = _junk(random, 3)
    return document


def _junk(random: Random, depth: int) -> object:
    match random.randrange(11 if depth else 8):
        case 0:
            return random.choice([None, True, False, 0, -1, 2**63, 10**30, 1.5, 1e308, -0.0])
        case 1 | 2:
            return random.choice(["live", "1h", "7d", "10%", "user_id", "amount > 1", "low", "final", "once", "seen"])
        case 3:
            return random.choice(TEXTS).text[:2_000]
        case 4:
            year, zone = random.choice([0, 1, 1969, 2026, 9999]), random.choice(["Z", "+23:59", "-23:59", ""])
            return f"{year:04}-{random.randrange(14):02}-01T00:00:00{zone}"
        case 5 | 6 | 7:
            return random.choice(WORDS) * random.choice([1, 1, 100])
        case 8:
            return [_junk(random, depth - 1) for _ in range(random.randrange(4))]
    chosen = [random.choice([*_NAMES, random.choice(WORDS)]) for _ in range(random.randrange(4))]
    return {name: _junk(random, depth - 1) for name in chosen}


def _record(random: Random) -> str:
    return _decode(_damage(random, _records(), MARKS))


def _grammar_record(random: Random) -> str:
    return _decode(json.dumps(_document(random)).encode())


def _decode(value: bytes) -> str:
    before = RuleSet.empty(STREAMS, LIMITS)
    try:
        found = decode_record(value, LIMITS.record_bytes)
    except RuleError as error:
        assert len(str(error)) < 5_000
        assert not UNREADABLE.search(str(error))
        assert "\n" not in str(error)
        assert before.apply([ControlRecord(0, 0, b"one", value)], 0)[0] == before
        return "rejected"
    assert decode_record(canonical_json(found), 1 << 30) == found
    try:
        compile_rule(found, STREAMS, LIMITS)
        word = "value"
    except RuleError as error:
        assert str(error)
        assert "\n" not in str(error)
        assert not UNREADABLE.search(str(error))
        word = "rejected"
    after, (status, *_) = before.apply([ControlRecord(0, 0, found.id.encode(), value)], 0)
    assert (status.status == "accepted") == (word == "value") == (after != before)
    return word


def _template(random: Random) -> str:
    some = random.choice([LETTERS, ["x"], ["x"], _BRACES])
    text = "".join(random.choices(["{{", "}}", "{user_id}", "{amount}", *some], k=random.randrange(30)))
    known = {"user_id": "{amount}", "amount": None}
    try:
        template = message.parse_template(text, known)
    except ExpressionError as error:
        assert "^" in error.render()
        return "rejected"
    rendered = template.format(lambda name: known[name])
    assert len(rendered) <= len(text) + 8 * len(template.names)
    if "{{{" not in text and "}}}" not in text:
        marked = text.replace("{{", "\0").replace("}}", "\1").replace("{user_id}", "\2").replace("{amount}", "null")
        assert rendered == marked.replace("\0", "{").replace("\1", "}").replace("\2", "{amount}")
    return "value"


def _tree(random: Random) -> str:
    """Return the JSON form of a tree, as a record could hold one."""
    sound = adapter.dump_json(Generator(random.getrandbits(60)).any_expression())
    words = ["null", "[]", "{}", '"node"', '"compare"', '"op"', "1e400", "-1", '"long"', "true", '"terms"', ","]
    try:
        tree = adapter.validate_json(_damage(random, [sound], words))
    except ValidationError as error:
        assert error.error_count() >= 1
        return "rejected"
    assert adapter.validate_json(adapter.dump_json(tree)) == tree
    return "value"


TARGETS: Mapping[str, Callable[[Random], str]] = {
    "expression": _expression,
    "file": _file,
    "file by grammar": _grammar_file,
    "record": _record,
    "record by grammar": _grammar_record,
    "message": _template,
    "tree": _tree,
}


if __name__ == "__main__":
    _seed, _, _number = sys.argv[1].partition("/")
    print(_case(int(_seed), int(_number)))
