"""Server-sent events: the new records of a lane for a page that is open."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated, TypeVar

import orjson
from fastapi import Header
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from headgate.time_arguments import parse_number
from headgate.web.context import Console, ShownApp
from headgate.web.problems import BusyError
from headgate.web.state.lanes.lane_feed import LaneFeed
from headgate.web.state.values import Value

_Shown = TypeVar("_Shown", bound=Value)
EVENT_STREAM = "text/event-stream"
_BEAT_S = 2.0  # and the longest time for which an ended session gets records
LastEventId = Annotated[str | None, Header(description="Set by a browser that connects again.")]


def follow_lane(
    app: ShownApp,
    console: Console,
    feed: LaneFeed[_Shown],
    event: str,
    session_holds: Callable[[], bool],
    last_event_id: str | None,
) -> StreamingResponse:
    """Return an answer that sends each new value of a lane as an event of this name, until the session ends.
    ``BusyError`` if too many pages get live records already."""
    if app.live_pages >= console.settings.limits.live_pages:
        raise BusyError(f"{app.live_pages} pages get live records already", 10)
    after = None if last_event_id is None else parse_number(last_event_id)

    async def lines() -> AsyncIterator[bytes]:
        yield b"retry: 2000\n: live\n\n"
        looked_s = time.monotonic()
        async for one in feed.values(after, _BEAT_S):
            if one is None or time.monotonic() - looked_s >= _BEAT_S:
                if not await run_in_threadpool(session_holds):
                    return
                looked_s = time.monotonic()
            yield b": still here\n\n" if one is None else _event(event, *one)

    return StreamingResponse(lines(), media_type=EVENT_STREAM, headers={"X-Accel-Buffering": "no"})


def _event(name: str, number: int, value: Value) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), orjson.dumps(value.model_dump(mode="json")))
