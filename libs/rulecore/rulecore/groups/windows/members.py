"""Window rules as members of a group: the stored record of the group, and the data to evaluate each rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson
import polars as pl

from rulecore import language as lang
from rulecore.compile.rule import AggregateSpec, CompiledRule
from rulecore.documents.slots import version_key
from rulecore.matching.access_plan import AccessPlan
from streamcore.schema import Type

#: The errors that evaluation may raise. A panic inside Polars is not an ``Exception``.
EVALUATION_ERRORS = (Exception, pl.exceptions.PanicException)


@dataclass(slots=True)
class GroupMetadata:
    """The facts that a group stores about its rules.

    ``bits``: the number of the fired bit of each rule version. ``since_ms``: by column, the event time from which an
    aggregate is complete. ``panes``: the panes of the longest window, 0 before the first ``set_rules``.
    """

    bits: dict[str, int] = field(default_factory=dict)
    since_ms: dict[str, int] = field(default_factory=dict)
    panes: int = 0

    def to_json(self) -> bytes:
        document = {"bits": self.bits, "since_ms": self.since_ms, "panes": self.panes}
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)

    def assign_bits(self, rules: Sequence[CompiledRule]) -> list[int]:
        """Assign a bit to each rule version; return the bits of removed versions, which new versions may reuse."""
        wanted = [version_name(r) for r in rules]
        freed = [self.bits.pop(version) for version in [*self.bits] if version not in wanted]
        used = set(self.bits.values())
        free = iter(n for n in range(len(wanted) + len(used)) if n not in used)
        for version in sorted(wanted):
            if version not in self.bits:
                self.bits[version] = next(free)
        return freed

    @classmethod
    def from_json(cls, blob: bytes | None) -> GroupMetadata:
        return cls() if blob is None else cls(**orjson.loads(blob))


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A rule of the group. ``panes``: panes per window. ``bit``: its fired bit. ``needs``: columns in ``having``."""

    rule: CompiledRule
    panes: int
    bit: int
    rows: str  # column that counts the events which satisfy `where`
    needs: frozenset[str]

    @property
    def plan(self) -> AccessPlan | None:
        """The access plan of ``having``."""
        return self.rule.having_plan


def evaluation_error(frame: pl.DataFrame, expressions: Sequence[pl.Expr]) -> str | None:
    """Return the error that the expressions raise on the frame, None if they raise none."""
    try:
        frame.select(list(expressions))
    except EVALUATION_ERRORS as error:
        return f"{type(error).__name__}: {error}"
    return None


def to_member(rule: CompiledRule, bit: int) -> GroupMember:
    """Return the rule as a member whose fired bit is ``bit``."""
    assert rule.having_on_columns is not None
    return GroupMember(rule, window_panes(rule), bit, rows_column(rule), lang.columns(rule.having_on_columns))


def window_panes(rule: CompiledRule) -> int:
    """Return the number of panes in a window of the rule."""
    assert rule.window is not None
    return rule.window.panes


def version_name(rule: CompiledRule) -> str:
    """Return ``id@version``."""
    return version_key(rule.rule)


def rows_column(rule: CompiledRule) -> str:
    """Return the column that counts the events which satisfy the rule's ``where``."""
    return f"rows_{lang.fingerprint(rule.where)}"


def argument_type(spec: AggregateSpec) -> Type | None:
    return None if spec.argument is None else spec.argument.type
