"""Which events of a stream with repeated ones are used: the definition, event by event, without code of the product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class EventsOnce:
    """The events of a stream by their id, with those that were used: their time and content.

    ``late``, ``same`` and ``other`` count what was not used: events behind the watermark by more than the horizon, and
    duplicates with the content of the first, or with another.
    """

    horizon_ms: int
    late: int = 0
    same: int = 0
    other: int = 0
    _used: dict[object, list[tuple[int, Mapping[str, object]]]] = field(default_factory=dict)

    def use(self, event: Mapping[str, object], event_id: object, time_ms: int, watermark_ms: int) -> bool:
        """Return whether an event is used; it is the next in the order of arrival."""
        if event_id is None:
            return True
        if time_ms < watermark_ms - self.horizon_ms:
            self.late += 1
            return False
        since_ms = watermark_ms - self.horizon_ms
        used = self._used.setdefault(event_id, [])
        near = [content for ms, content in used if ms >= since_ms and abs(ms - time_ms) <= self.horizon_ms]
        if near:
            self.same += near[0] == event
            self.other += near[0] != event
            return False
        used.append((time_ms, event))
        return True


def first_of_each(ids: Iterable[object]) -> list[bool]:
    """Return for each event whether it is the first with its id."""
    seen: set[object] = set()
    result = []
    for one in ids:
        result.append(one not in seen)
        seen.add(one)
    return result
