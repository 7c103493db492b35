"""The entries of patterns in the sequences of rules, by the meaning of Flink's CEP library, with alerts by hand.

An event is written as minute, kind and amount (``5a7``; ``5a`` has amount 0), a match as its events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import orjson
import pytest

from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS

MINUTE = 60_000
T0 = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
SCHEMA = StreamSchema.parse(
    {
        "name": "acts",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "kind": "string", "amount": "decimal(12,2)"},
    }
)
USERS = ("u", "v", "w")
Item = dict[str, object]
A: Item = {"step": "a", "where": "kind = 'a'"}
B: Item = {"step": "b", "where": "kind = 'b'"}
C: Item = {"step": "c", "where": "kind = 'c'"}
A_OR_B: Item = {"step": "b", "where": "kind in ('a', 'b')"}
MANY = {"min": 1}
GREEDY: Item = {**A, "times": MANY, "greedy": True}
ALL = {"skip": "none"}


def followed(word: str, step: Item) -> Item:
    return {word: step["step"], "where": step["where"]}


def b_where(condition: str) -> Item:
    return {"step": "b", "where": f"kind = 'b' and {condition}"}


def document(items: Sequence[Item], more: Mapping[str, object]) -> bytes:
    body = {
        "id": "r",
        "version": 1,
        "owner": "o",
        "on": "acts",
        "group_by": ["user"],
        "sequence": items,
        "within": "1h",
        "then": {"severity": "high", "message": "m"},
    }
    return orjson.dumps(body | dict(more))


AGGREGATED = "1a3 2a5 3b3 4b5 5b8 6b4 7b2"
TWICE: Item = {**A, "times": 2}
#: Name, entries, the rest of the rule, events, and matches; ``timed out`` before those of which the time was over.
RULES: Sequence[tuple[str, Sequence[Item], Mapping[str, object], str, Sequence[str]]] = (
    ("next", [A, followed("next", B)], ALL, "1a 2x 3b 4a 5b", ["4a 5b"]),
    ("followed by", [A, followed("followed_by", B)], ALL, "1a 2x 3b 4b", ["1a 3b"]),
    ("followed by any", [A, followed("followed_by_any", B)], ALL, "1a 2x 3b 4b", ["1a 3b", "1a 4b"]),
    ("times", [{**A, "times": {"min": 2, "max": 3}}, B], ALL, "1a 2a 3a 4b", ["1a 2a 3a 4b", "1a 2a 4b", "2a 3a 4b"]),
    ("at most", [{**A, "times": {"min": 1, "max": 2}}, B], ALL, "1a 2a 3b", ["1a 2a 3b", "1a 3b", "2a 3b"]),
    ("no times", [A, {**B, "times": {"min": 0, "max": 1}}, C], ALL, "1a 2b 3c", ["1a 2b 3c", "1a 3c"]),
    ("optional", [A, {**B, "optional": True}, C], ALL, "1a 2b 3c", ["1a 2b 3c", "1a 3c"]),
    ("not greedy", [{**A, "times": MANY}, A_OR_B], ALL, "1a 2a 3b", ["1a 2a", "1a 2a 3b", "2a 3b"]),
    ("greedy", [GREEDY, A_OR_B], ALL, "1a 2a 3b", ["1a 2a 3b", "2a 3b"]),
    (
        "until",
        [{**A, "times": MANY, "until": "kind = 'x'"}, B],
        ALL,
        "1a 2a 3x 4a 5b",
        ["1a 2a 5b", "1a 5b", "2a 5b", "4a 5b"],
    ),
    ("consecutive", [{**TWICE, "consecutive": True}, B], ALL, "1a 2x 3a 4a 5b", ["3a 4a 5b"]),
    ("combinations", [{**TWICE, "allow_combinations": True}], ALL, "1a 2a 3a", ["1a 2a", "1a 3a", "2a 3a"]),
    ("group", [{"group": [A, B], "times": 2}, C], ALL, "1a 2b 3c 4a 5b 6c", ["1a 2b 4a 5b 6c"]),
    ("strict group", [A, {"group": [B, C], "contiguity": "next"}], ALL, "1a 2x 3b 4c 5a 6b 7c", ["5a 6b 7c"]),
    ("optional group", [A, {"group": [B], "optional": True}, C], ALL, "1a 2b 3c", ["1a 2b 3c", "1a 3c"]),
    ("not directly", [A, {"without": "kind = 'c'", "directly": True}, B], ALL, "1a 2c 3b 4a 5x 6c 7b", ["4a 7b"]),
    ("past last", [GREEDY, B], {}, "1a 2a 3a 4b", ["1a 2a 3a 4b"]),
    ("to next", [GREEDY, B], {"skip": "to_next"}, "1a 2a 3a 4b", ["1a 2a 3a 4b", "2a 3a 4b", "3a 4b"]),
    ("to first", [GREEDY, B], {"skip": {"to_first": "b"}}, "1a 2a 3a 4b", ["1a 2a 3a 4b"]),
    ("to last", [GREEDY, B], {"skip": {"to_last": "a"}}, "1a 2a 3a 4b", ["1a 2a 3a 4b", "3a 4b"]),
    ("timed out", [A, B], {"within": "10m", "timed_out": "emit"}, "1a 30a 35b", ["30a 35b", "timed out 1a"]),
    ("dropped", [A, B], {"within": "10m", "timed_out": "drop"}, "1a 30a 35b", ["30a 35b"]),
    ("a.amount", [TWICE, b_where("amount = a.amount")], {}, AGGREGATED, ["1a3 2a5 4b5"]),
    ("first", [TWICE, b_where("amount = first(a.amount)")], {}, AGGREGATED, ["1a3 2a5 3b3"]),
    ("last", [TWICE, b_where("amount = last(a.amount)")], {}, AGGREGATED, ["1a3 2a5 4b5"]),
    ("sum", [TWICE, b_where("amount = sum(a.amount)")], {}, AGGREGATED, ["1a3 2a5 5b8"]),
    ("min", [TWICE, b_where("amount = min(a.amount)")], {}, AGGREGATED, ["1a3 2a5 3b3"]),
    ("max", [TWICE, b_where("amount = max(a.amount)")], {}, AGGREGATED, ["1a3 2a5 4b5"]),
    ("avg", [TWICE, b_where("to_double(amount) = avg(a.amount)")], {}, AGGREGATED, ["1a3 2a5 6b4"]),
    ("count", [TWICE, b_where("amount = count(a)")], {}, AGGREGATED, ["1a3 2a5 7b2"]),
    ("own name", [A, b_where("b.amount > 2 * a.amount")], {}, "1a3 2b6 3b7", ["1a3 3b7"]),
    (
        "own name in a loop",
        [{**TWICE, "where": "a.amount > coalesce(last(a.amount), 0)"}],
        {},
        "1a3 2a2 3a4",
        ["1a3 3a4"],
    ),
    ("distinct", [TWICE, b_where("count(distinct a.amount) = 2")], ALL, "1a3 2a3 3a4 4b", ["2a3 3a4 4b"]),
    ("computed", [TWICE, b_where("amount = max(2 * a.amount)")], {}, "1a3 2a5 3b5 4b10", ["1a3 2a5 4b10"]),
    ("at least", [{**A, "times": {"at_least": 2}, "greedy": True}, B], {}, "1a 2b 3a 4b", ["1a 3a 4b"]),
    ("at most 2", [{**A, "times": {"at_most": 2}}, B], ALL, "1a 2a 3b", ["1a 2a 3b", "1a 3b", "2a 3b"]),
    ("without", [A, {"without": "amount = a.amount"}, B], ALL, "1a3 2a5 3x5 4b", ["1a3 4b"]),
    ("quiet", [A, {"without": "kind = 'b' and amount >= a.amount", "within": "5m"}], ALL, "1a3 2a5 3b4", ["2a5"]),
    (
        "until compares",
        [{**A, "times": MANY, "until": "amount < first(a.amount)", "greedy": True}, B],
        {},
        "1a3 2a5 3x1 4a6 5b9",
        ["1a3 2a5 5b9"],
    ),
    (
        "group compares",
        [{"group": [A, b_where("amount > a.amount")], "times": 2}, {"step": "c", "where": "amount > sum(b.amount)"}],
        {},
        "1a3 2b4 3a5 4b5 5b7 6c11 7c12",
        ["1a3 2b4 3a5 5b7 7c12"],
    ),
    (
        "own events",
        [{**GREEDY, "where": "kind = 'a' and amount > coalesce(last(a.amount), 0)", "times": {"min": 2}}, B],
        ALL,
        "1a3 2a2 3a5 4b",
        ["1a3 3a5 4b", "2a2 3a5 4b"],
    ),
)


def records(text: str) -> list[RawRecord]:
    """Return the events for each user in turn, and one that moves the watermark behind them."""
    found = []
    for number, word in enumerate([*text.split(), "900z"]):
        minute, kind, amount = re.fullmatch(r"(\d+)([a-z])(\d*)", word).groups()  # type: ignore[union-attr]
        for turn, user in enumerate(USERS):
            event = {"ts": T0 + int(minute) * MINUTE, "user": user, "kind": kind, "amount": int(amount or 0)}
            found.append(RawRecord(0, 0, number * len(USERS) + turn, orjson.dumps(event)))
    return found


def run(rule: bytes, text: str, *, shards: int, each: bool, restart: bool) -> dict[str, list[str]]:
    """Return the matches of each user. ``each``: a cut for each event of a user. ``restart``: between all cuts."""
    kernel = RulesFactory((RuleStream(SCHEMA, "acts"),))
    watermark = WatermarkStrategy(max_out_of_orderness_ms=0)
    app = App("t", (Source(SCHEMA, "acts"),), "control", {}, (kernel,), shards=shards, watermark=watermark)
    running = InProcessApp(app)
    events, words = records(text), text.split()
    half = len(events) // 2
    each_turn = [events[first : first + len(USERS)] for first in range(0, len(events), len(USERS))]
    cuts = each_turn if each else [events[:half], events[half:]] if restart else [events]
    found: dict[str, list[str]] = {user: [] for user in USERS}
    for number, cut in enumerate([[control_record(1, "r", rule), *cuts[0]], *cuts[1:], []]):
        if restart and number:
            running = InProcessApp(app, running.blobs, next_offsets=running.next_offsets)
        for record in running.cut(cut, T0 + 10_000 * MINUTE):
            if record.lane == ALERTS:
                alert = orjson.loads(record.value or b"")
                match = " ".join(words[event["offset"] // len(USERS)] for event in alert["events"])
                timed_out = alert["values"].get("timed_out", False)
                found[alert["key"]["user"]].append(f"timed out {match}" if timed_out else match)
    return {user: sorted(matches) for user, matches in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("items", "more", "text", "expected"), [r[1:] for r in RULES], ids=[r[0] for r in RULES])
def test_the_alerts_of_a_rule(
    items: Sequence[Item], more: Mapping[str, object], text: str, expected: Sequence[str]
) -> None:
    for shards, each, restart in ((1, False, False), (3, True, True)):
        found = run(document(items, more), text, shards=shards, each=each, restart=restart)
        assert found == {user: sorted(expected) for user in USERS}, (shards, each, restart)
