"""An app with a function of its own author, in two versions: the second keeps what the first did under another name and
in another type. Becomes ``headgate_sessions.counter`` in an image."""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import polars as pl

from streamcore.keyed import ProcessContext, ProcessFunction, Row, ValueState
from streamcore.operators.base import MAIN
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology


class Numbers(ProcessFunction):
    """The sum of a user's quantities, as a number."""

    outputs = {MAIN: {"user_id": pl.String, "total": pl.String}}  # noqa: RUF012
    total = ValueState(int, default=0)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.total += event.quantity
        yield {"user_id": event.user_id, "total": str(self.total)}


def _to_hundreds(row: Row) -> Row:
    total = row["total"]
    assert isinstance(total, int)
    return {"hundreds": Decimal(total) / 100}


class Hundreds(ProcessFunction):
    """The same sum in hundreds, as a decimal."""

    outputs = {MAIN: {"user_id": pl.String, "total": pl.String}}  # noqa: RUF012
    version = 2
    migrations = {1: _to_hundreds}  # noqa: RUF012
    hundreds = ValueState(pl.Decimal(18, 2), default=Decimal(0))

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.hundreds += Decimal(event.quantity) / 100
        yield {"user_id": event.user_id, "total": f"{self.hundreds:.2f}"}


def topology(settings: Any) -> Topology:
    """Return a topology with a total for each user and event."""
    function = {"1": Numbers, "2": Hundreds}[os.environ["COUNTER_VERSION"]]
    by_user = source(settings.stream.stream_schema(), settings.watermark).key_by("user_id")
    return Topology(settings.app, by_user.process(function(), name="total").sink("totals", key="user_id"))


def main() -> None:
    """Run the service with this topology."""
    from headgate_sessions import app

    app.build_topology = topology
    runpy.run_module("headgate_sessions.sound", run_name="__main__")
