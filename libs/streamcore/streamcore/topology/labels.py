"""Short texts for durations and windows, for pictures and plans."""

from __future__ import annotations

from streamcore.windowing import (
    Assigner,
    CalendarDay,
    CountSliding,
    CountTumbling,
    GlobalWindow,
    Session,
    Sliding,
    Tumbling,
)

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def format_duration(ms: int) -> str:
    """Return a duration in the largest unit that divides it: ``90 min``, ``1 h``, ``-5 s``, ``0 ms``."""
    for size, unit in _UNITS:
        if ms and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms"


def describe_windows(assigner: Assigner) -> str:
    """Return the kind and sizes of windows as a short text."""
    match assigner:
        case Tumbling():
            return f"tumbling {format_duration(assigner.size_ms)}{_offset(assigner.offset_ms)}"
        case Sliding():
            label = f"sliding {format_duration(assigner.size_ms)} every {format_duration(assigner.slide_ms)}"
            return label + _offset(assigner.offset_ms)
        case Session():
            own = f" or column {assigner.gap_field}" if assigner.gap_field else ""
            return f"session, gap {format_duration(assigner.gap_ms)}{own}"
        case CalendarDay():
            return f"day in {assigner.zone}"
        case CountTumbling():
            return f"every {assigner.count} elements"
        case CountSliding():
            return f"{assigner.count} elements, every {assigner.every}"
        case GlobalWindow():
            return "global"
        case _:
            return type(assigner).__name__


def _offset(offset_ms: int) -> str:
    return f", offset {format_duration(offset_ms)}" if offset_ms else ""
