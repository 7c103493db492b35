"""Sinks with their protection against repeated cuts switched off, for tests that must be able to fail."""

from __future__ import annotations

from collections.abc import Mapping

from streamcore.sinks.delta import sink as delta
from streamcore.sinks.postgres import sink as postgres
from streamcore.sinks.postgres.connecting import Connection
from streamcore.sinks.postgres.ledger import Entry, Ledger


class ForgetfulPostgres(postgres.PostgresSink):
    """It never sees which cut was written last."""

    def locked_entry(self, connection: Connection, ledger: Ledger) -> Entry:
        return Entry(super().locked_entry(connection, ledger).epoch, None)


class ForgetfulDelta(delta.DeltaSink):
    """A commit says neither its cut nor its epoch."""

    def _marks(self, lane: str, batch: int) -> Mapping[str, int]:
        return {}


def forget() -> None:
    """Put them in the places where services find the sinks."""
    vars(postgres)["PostgresSink"] = ForgetfulPostgres
    vars(delta)["DeltaSink"] = ForgetfulDelta
