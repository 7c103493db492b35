"""A program of its own author in two versions: the second keeps what the first did under another name and in another
type. Its events are those of the demo shop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import polars as pl

import streamcore as sc

SHOP = sc.StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "keys": [["user_id"]],
        "fields": {"ts": "timestamp not null", "user_id": "string not null", "quantity": "long not null"},
    }
)


class Numbers(sc.ProcessFunction):
    """The sum of a user's quantities, as a number."""

    outputs = {sc.MAIN: {"user_id": pl.String, "total": pl.String}}  # noqa: RUF012
    total = sc.ValueState(int, default=0)

    def process(self, event: Any, context: sc.ProcessContext) -> Iterable[object]:
        self.total += event.quantity
        yield {"user_id": event.user_id, "total": str(self.total)}


def _to_hundreds(row: Mapping[str, object]) -> dict[str, object]:
    total = row["total"]
    assert isinstance(total, int)
    return {"hundreds": Decimal(total) / 100}


class Hundreds(sc.ProcessFunction):
    """The same sum in hundreds, as a decimal."""

    outputs = {sc.MAIN: {"user_id": pl.String, "total": pl.String}}  # noqa: RUF012
    version = 2
    migrations = {1: _to_hundreds}  # noqa: RUF012
    hundreds = sc.ValueState(pl.Decimal(18, 2), default=Decimal(0))

    def process(self, event: Any, context: sc.ProcessContext) -> Iterable[object]:
        self.hundreds += Decimal(event.quantity) / 100
        yield {"user_id": event.user_id, "total": f"{self.hundreds:.2f}"}


def _topology(function: sc.ProcessFunction) -> sc.Topology:
    by_user = sc.source(SHOP, sc.bounded_out_of_orderness("10s")).key_by("user_id")
    return sc.Topology("counter", by_user.process(function, name="total").sink("totals", key="user_id"))


first = _topology(Numbers())
second = _topology(Hundreds())
