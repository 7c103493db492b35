"""A process that writes cuts to an Iceberg table and dies at a given step.

``folder`` has an SQL catalogue in SQLite, or the file ``catalog.json`` with the options of another one. ``death``: a
step of the protocol, the ``at``-th time; ``commit``: in that cut, when its files and the table's new metadata are
written and the catalogue has not taken them; ``lost``: right after it has, before the sink knows; ``never``.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog
from sqlalchemy.engine.default import DefaultDialect

from streamcore.cuts.writer_id import WriterId
from streamcore.sinks.iceberg.settings import IcebergCatalog, IcebergSettings, IcebergTableSpec
from streamcore.sinks.iceberg.sink import IcebergSink
from streamcore.sinks.sink import RetryPolicy, SinkHooks
from tests.harness.cut_ids import cut_id
from tests.harness.faults.delta_child import SCHEMA, cut

TABLE = "shop.rows"


def options(folder: Path) -> dict[str, str]:
    """Return the options of the catalogue of a folder."""
    other = folder / "catalog.json"
    if other.exists():
        found: dict[str, str] = json.loads(other.read_text())
        return found
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def settings(folder: Path) -> IcebergSettings:
    """Return the settings of one lane with a table in the folder's catalogue."""
    tables = {"rows": IcebergTableSpec(TABLE, ("day",))}
    return IcebergSettings(IcebergCatalog(options(folder)), tables, patience=RetryPolicy(20_000, 10, 100))


def sink(folder: Path, hooks: SinkHooks | None = None) -> IcebergSink:
    """Return the sink of the table."""
    return IcebergSink(settings(folder), {"rows": SCHEMA}, hooks)


def die_in_the_commit(*, after: bool) -> None:
    """Let the catalogue's next commit kill the process, before or after it takes effect."""
    for kind, name in ((DefaultDialect, "do_commit"), (RestCatalog, "commit_table")):
        # A class of the library is changed, in a process that dies of it.
        type.__setattr__(kind, name, _dying(getattr(kind, name) if after else None))


def _dying(commit: Callable[..., object] | None) -> Callable[..., None]:
    def die(*arguments: object) -> None:
        if commit is not None:
            commit(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    return die


def main(folder: Path, cuts: int, death: str = "never", at: int = 1) -> None:
    """Write cuts 0 to ``cuts`` - 1, without those that an earlier process has written."""
    left = at

    def reached(step: str) -> None:
        nonlocal left
        left -= step == ("before-commit" if death in ("commit", "lost") else death)
        if left == 0 and death in ("commit", "lost"):
            die_in_the_commit(after=death == "lost")
        elif left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    writer = sink(folder, SinkHooks(on_step=reached))
    last = writer.open(WriterId("app", 1))
    for batch in range(0 if last is None else last.batch, cuts):  # Spark repeats the last cut
        writer.write(cut_id(batch), {"rows": cut(batch)})
    writer.close()
