"""Windows and triggers as values, and the reference that says what they mean.

Everything here is plain Python over frozen values: no tables, no storage, no client of anything. The vectorised
kernels are fast; this package is right, and the transcripts and properties beside it hold the two together.
"""

from streamcore.windowing.assigners import (
    Assigner,
    CalendarDay,
    CountSliding,
    CountTumbling,
    GlobalWindow,
    Session,
    Sliding,
    Tumbling,
)
from streamcore.windowing.composites import AllOf, AnyOf, InSequence, OrFinally, Purging, Repeatedly
from streamcore.windowing.evictors import Evictor, KeepCount, KeepNear, KeepRecent
from streamcore.windowing.reference import ReferenceWindows
from streamcore.windowing.revising import Revising
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    AtEndOfStream,
    Moment,
    Never,
    OnPunctuation,
    Trigger,
    TriggerState,
)
from streamcore.windowing.values import (
    Accumulation,
    Counts,
    CountWindow,
    Dropped,
    DropReason,
    Element,
    Firing,
    Output,
    Timing,
    Window,
    WindowFunction,
)

__all__ = [
    "Accumulation",
    "AfterCount",
    "AfterProcessingTime",
    "AfterWatermark",
    "AllOf",
    "AnyOf",
    "Assigner",
    "AtEndOfStream",
    "CalendarDay",
    "CountSliding",
    "CountTumbling",
    "CountWindow",
    "Counts",
    "DropReason",
    "Dropped",
    "Element",
    "Evictor",
    "Firing",
    "GlobalWindow",
    "InSequence",
    "KeepCount",
    "KeepNear",
    "KeepRecent",
    "Moment",
    "Never",
    "OnPunctuation",
    "OrFinally",
    "Output",
    "Purging",
    "ReferenceWindows",
    "Repeatedly",
    "Revising",
    "Session",
    "Sliding",
    "Timing",
    "Trigger",
    "TriggerState",
    "Tumbling",
    "Window",
    "WindowFunction",
    "WindowSpec",
]
