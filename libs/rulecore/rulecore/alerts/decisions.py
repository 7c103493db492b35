"""Merges the parts of a cut into decisions: one record for each event, whichever shards its rules ran in.

The driver calls it with the rows of all shards. It is a pure function of them, so a cut that runs again gives the same
bytes. It imports no columnar library but Arrow, because a driver has no frames.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final  # a part is a row of JSON and numbers

import orjson

from streamcore.wire.lanes import DECISIONS, Record

if TYPE_CHECKING:
    import pyarrow as pa

#: The rows of shards that ``merge_decisions`` takes.
DECISION_PARTS: Final = "decision_parts"
#: Most rules that a decision lists; all of them count.
MAX_LISTED: Final = 100
#: Most bytes of the rules that a decision lists, so that its record is well below the million of a record in Kafka.
MAX_LISTED_BYTES: Final = 400_000


class DecisionCause(enum.StrEnum):
    """Why an event has a decision: a rule fired, or the policy's ``where`` or ``share`` has chosen it."""

    RULES = "rules"
    WHERE = "where"
    SHARE = "share"


_CAUSES: Final = tuple(DecisionCause)


def decision_id(policy: str, version: int, place: Mapping[str, object]) -> str:
    """Return the id of the decision about the event at this topic, partition and offset: a hash of these."""
    identity = [policy, version, place["topic"], place["partition"], place["offset"]]
    return hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest()


def merge_decisions(parts: pa.Table) -> Sequence[Record]:
    """Return a record for each event, in order of topic, partition and offset."""
    rows = sorted(parts.to_pylist(), key=lambda row: (*_place(row), *_precedence(row)))
    policies = {text: orjson.loads(text) for text in {row["policy"] for row in rows}}
    return [_decide([*own], policies) for _, own in groupby(rows, _place)]


def _place(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def _precedence(row: Mapping[str, Any]) -> tuple[str, int, int, int, str]:
    """Return what orders the rows of an event: of a rule that fired in several windows, the decision has the first one
    whose alert was sent, and of these that of the earliest window."""
    return row["rule"], row["version"], row["withheld"], row["start_ms"], row["entry"]


def _decide(rows: Sequence[Mapping[str, Any]], policies: Mapping[str, Mapping[str, Any]]) -> Record:
    """Return the decision about one event. A rule that fired several times at it counts once. ``policies``: by text."""
    policy = policies[rows[0]["policy"]]
    fired = {(row["rule"], row["version"], row["counts"]): row for row in reversed(rows) if row["rule"]}
    strength = {name: number for number, name in enumerate(policy["order"])}
    by_effect = sorted(
        fired.values(),
        key=lambda row: (strength.get(row["outcome"], len(strength)), -row["score"], row["rule"], row["version"]),
    )
    counting = [row for row in by_effect if row["counts"]]
    shadow = [row for row in by_effect if not row["counts"]]
    outcome, score, band = decide(policy, [(row["outcome"], row["score"]) for row in counting])
    event = orjson.loads(rows[0]["event"])
    name = decision_id(policy["policy"], policy["version"], event["source"])
    rules, room = _take_entries(counting, MAX_LISTED_BYTES)
    in_shadow, _ = _take_entries(shadow, room)
    document = {
        "decision_id": name,
        "policy": policy["policy"],
        "version": policy["version"],
        "outcome": outcome,
        "score": score,
        "band": band,
        "cause": min((DecisionCause(row["cause"]) for row in rows), key=_CAUSES.index),
        **event,
        "rules": rules,
        "shadow": in_shadow,
    }
    if left_out := len(by_effect) - len(rules) - len(in_shadow):
        document["left_out"] = left_out
    return Record(DECISIONS, name.encode(), orjson.dumps(document))


def decide(policy: Mapping[str, Any], fired: Iterable[tuple[str | None, int]]) -> tuple[str, int, str | None]:
    """Return outcome, score and band of a decision. ``policy``: the entry ``decide`` of a policy. ``fired``: outcome
    and score of each rule that counts. One without an outcome, or with one that is not in ``order``, gives its score
    alone."""
    found = [*fired]
    scores = [score for _, score in found]
    score = sum(scores) if policy["score"] == "sum" else max(scores, default=0)
    reached = [name for name, from_score in policy["bands"].items() if score >= from_score]
    order: Sequence[str] = policy["order"]
    band = min(reached, key=order.index, default=None)
    named = [name for name, _ in found if name in order] + ([] if band is None else [band])
    return min(named, key=order.index, default=policy["default"]), score, band


def _take_entries(rows: Sequence[Mapping[str, Any]], room: int) -> tuple[list[orjson.Fragment], int]:
    """Return the entries of the first rules that have at most ``room`` bytes together, and the bytes that are left."""
    entries = []
    for row in rows[:MAX_LISTED]:
        entry: bytes = row["entry"].encode()
        if len(entry) > room:
            break
        entries.append(orjson.Fragment(entry))
        room -= len(entry)
    return entries, room
