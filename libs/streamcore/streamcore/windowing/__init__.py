"""Windows and triggers as values, and the reference that defines their meaning.

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
from streamcore.windowing.composite_triggers import AllOf, AnyOf, InSequence, OrFinally, Purging, Repeatedly
from streamcore.windowing.evictors import Evictor, KeepCount, KeepNear, KeepRecent
from streamcore.windowing.model import (
    Accumulation,
    CountWindow,
    DroppedElement,
    DropReason,
    Element,
    FiredPane,
    Timing,
    Window,
    WindowCounts,
    WindowFunction,
    WindowOutput,
)
from streamcore.windowing.reference import ReferenceWindows
from streamcore.windowing.revisions import RevisionPolicy
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    AtEndOfStream,
    Earliest,
    Never,
    OnPunctuation,
    Trigger,
    TriggerContext,
    TriggerState,
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
    "DropReason",
    "DroppedElement",
    "Earliest",
    "Element",
    "Evictor",
    "FiredPane",
    "GlobalWindow",
    "InSequence",
    "KeepCount",
    "KeepNear",
    "KeepRecent",
    "Never",
    "OnPunctuation",
    "OrFinally",
    "Purging",
    "ReferenceWindows",
    "Repeatedly",
    "RevisionPolicy",
    "Session",
    "Sliding",
    "Timing",
    "Trigger",
    "TriggerContext",
    "TriggerState",
    "Tumbling",
    "Window",
    "WindowCounts",
    "WindowFunction",
    "WindowOutput",
    "WindowSpec",
]
