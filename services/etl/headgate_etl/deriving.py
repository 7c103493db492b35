"""The second phase with lists: an operator that hears the control topic, and computes with what lists hold.

A list is published as for rules (``headgate lists publish``): versioned, in parts, with an owner and perhaps an end,
and answered on the status lane. Records of a cut count before its rows, and an entry's end is measured by the clock of
the cut, so every row of a cut sees the same lists, and sees them again when the cut is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from headgate_etl.phase import Phase
from rulecore.control_keys import LIST_KEY, LIST_PART_KEY
from rulecore.lang import ListType
from rulecore.lists import control
from rulecore.lists.store import ListStore, save
from rulecore.status import Status, StatusKind, placed
from streamcore.kernel import Control
from streamcore.operators.operator import MAIN, Ports, StepTime
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.state import KeyValueTable
from streamcore.state.table import StateTable
from streamcore.topology.control import CONTROL_KEY, CONTROL_VALUE

#: The port of answers to control records.
ANSWERS = "answers"
_ANSWER = {
    "subject": pl.String(),
    "rule": pl.String(),
    "version": pl.Int64(),
    "status": pl.String(),
    "reason": pl.String(),
    "rules_epoch": pl.Int64(),
    "control": pl.Struct({"partition": pl.Int64(), "offset": pl.Int64()}),
    EVENT_MS: pl.Int64(),
}


@dataclass(frozen=True)
class MakeDeriving:
    """Makes the operator. Travels."""

    phase: Phase
    lists: Mapping[str, ListType]

    def __call__(self) -> Deriving:
        return Deriving(self.phase, self.lists)


class Deriving:
    """The operator: rows, and control records."""

    def __init__(self, phase: Phase, lists: Mapping[str, ListType]) -> None:
        self.phase, self.declared = phase, lists
        self.lists = ListStore.empty()
        self._table = KeyValueTable()
        self._refused = 0

    @property
    def output_delay_ms(self) -> int:
        """None."""
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: StepTime) -> Ports:
        rows, records = inputs
        said = self._hear(records, time)
        return {MAIN: self.phase.run(rows, self.lists.contents(time.clock_ms)), ANSWERS: said}

    def tables(self) -> Mapping[str, StateTable]:
        return {"lists": self._table}

    def loaded(self) -> None:
        if dict(self._table) != dict(self.lists.records()):
            self.lists = ListStore.restore(self._table)

    def metrics(self) -> Mapping[str, int]:
        """Control records that were refused since the last call."""
        refused, self._refused = self._refused, 0
        return {"lists_refused": refused}

    # --- lists ------------------------------------------------------------------------------------------------------

    def _hear(self, records: pl.DataFrame, time: StepTime) -> pl.DataFrame:
        """Take the records of the cut; shard 0 answers for all."""
        if not records.height:
            return pl.DataFrame(schema=_ANSWER)
        coming, _, going = control.split(_controls(records))
        before = self.lists
        said = [placed(self._take(one), one) for one in (*coming, *going)]
        if self.lists is not before:
            save(self.lists, self._table)
        return _answer_rows(said if time.shard == 0 else [])

    def _take(self, record: Control) -> Status:
        key = (record.key or b"").decode()
        store, answer = self.lists.apply(key, record.value, partial(_users, self.declared))
        if (wrong := self._wrong_type(store, key)) is not None:
            answer = replace(answer, status=StatusKind.REJECTED, reason=wrong)
        else:
            self.lists = store
        self._refused += answer.status is StatusKind.REJECTED
        return answer

    def _wrong_type(self, store: ListStore, key: str) -> str | None:
        """A list that expressions ask has the types that they were checked with."""
        name = key.removeprefix(LIST_KEY)
        live, declared = store.lists.get(name), self.declared.get(name)
        if key.startswith(LIST_PART_KEY) or live is None or declared is None or live.head.type == declared:
            return None
        value = "" if declared.value is None else f" with values of {declared.value}"
        return f"the settings declare list {name} of {declared.of}{value}; publish it with these types"


def _users(declared: Mapping[str, ListType], name: str) -> Sequence[str]:
    return ("the settings",) if name in declared else ()


def _controls(records: pl.DataFrame) -> list[Control]:
    columns = records.select(PARTITION, OFFSET, CONTROL_KEY, CONTROL_VALUE)
    return [Control(p, o, k.encode(), None if v is None else v.encode()) for p, o, k, v in columns.iter_rows()]


def _answer_rows(said: Sequence[Status]) -> pl.DataFrame:
    rows = [
        {
            "subject": one.subject.value,
            "rule": one.name,
            "version": one.version,
            "status": one.status.value,
            "reason": one.reason,
            "rules_epoch": one.rules_epoch,
            "control": {"partition": one.partition, "offset": one.offset},
            EVENT_MS: 0,
        }
        for one in said
    ]
    return pl.DataFrame(rows, schema=_ANSWER)
