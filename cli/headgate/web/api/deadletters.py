"""Dead letters: pages with counts by code, and one record."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from headgate.dead_letters.model import DeadLetterFilter
from headgate.web.changes.replay import send_again
from headgate.web.context import TheApp, TheConsole
from headgate.web.state.lanes.newest_first import read_cursor
from headgate.web.state.values import DeadLetterPage, DeadLetterValue, ReplayValue

ROUTER = APIRouter(prefix="/api/v1/apps/{app}", tags=["dead letters"])
Partition = Annotated[int, Path(ge=0, le=2**31 - 1, description="Partition of the dead-letter topic.")]
Offset = Annotated[int, Path(ge=0, le=2**62, description="Offset in the partition.")]


@ROUTER.get("/dead-letters")
def list_dead_letters(
    app: TheApp,
    console: TheConsole,
    code: Annotated[str, Query(description="Only this code.")] = "",
    reason: Annotated[str, Query(description="Only reasons with this text, such as the name of a field.")] = "",
    source: Annotated[str, Query(description="Only records of this topic.")] = "",
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, description="Most rows; the console's own limit holds too.")] = 50,
) -> DeadLetterPage:
    """List dead letters, the newest first, with the counts by code of the newest that one search reads."""
    wanted = DeadLetterFilter((), (code,) if code else (), reason or None, (source,) if source else ())
    return app.letters.page(wanted, console.rows(limit), read_cursor(cursor))


@ROUTER.get("/dead-letters/{partition}/{offset}")
def read_dead_letter(app: TheApp, partition: Partition, offset: Offset) -> DeadLetterValue:
    """Return the dead letter at a position."""
    return app.letters.find(partition, offset)


class DeadLetterRepair(BaseModel):
    """How a dead letter is sent again."""

    model_config = ConfigDict(extra="forbid")

    value: Annotated[str | None, Field(description="Its new value; null: the bytes that were rejected.")] = None


@ROUTER.post("/dead-letters/{partition}/{offset}/replay")
def replay_dead_letter(app: TheApp, partition: Partition, offset: Offset, body: DeadLetterRepair) -> ReplayValue:
    """Send a dead letter to its source again, repaired or as it was: once, however often this is asked."""
    return send_again(app.kafka, app.letters, (partition, offset), body.value)
