"""The OpenLineage events of an app (https://openlineage.io/spec/2-0-2/OpenLineage.json), as JSON objects.

A run is the work of one process on an app in an epoch: one ``START``, then ``RUNNING`` for each further range, at last
``COMPLETE`` or ``FAIL``. Its id is a function of job, epoch and first cut, so that a process which repeats a cut
continues the run. Names of datasets follow the specification's naming rules; its facets have no field for offsets, so
the range is in two facets of our own, ``headgate_cuts`` and ``headgate_offsets``.
"""

from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streamcore.lineage.cut_range import CutRange
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from streamcore.schema import StreamSchema

Json = Mapping[str, object]

PRODUCER: Final = "urn:headgate:streamcore"
_SPEC: Final = "https://openlineage.io/spec"
_FACETS: Final = f"{_SPEC}/facets"
_EVENT: Final = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_JOB_TYPE: Final = f"{_FACETS}/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet"
_SCHEMA: Final = f"{_FACETS}/1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet"
_READ: Final = f"{_FACETS}/1-0-0/InputStatisticsInputDatasetFacet.json#/$defs/InputStatisticsInputDatasetFacet"
_WRITTEN: Final = f"{_FACETS}/1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
_RUNS: Final = uuid.UUID("0f0cf9f8-54b4-5c3c-9a0d-6a0c53b4a6a1")


class EventType(enum.StrEnum):
    """The transition of a run that an event reports."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset by its name in OpenLineage. ``fields``: name and type of each field, if they are known."""

    namespace: str
    name: str
    fields: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class LineageJob:
    """An app as a job. ``inputs``: the datasets by topic; ``outputs``: by lane."""

    namespace: str
    name: str
    inputs: Mapping[str, Dataset] = field(default_factory=dict)
    outputs: Mapping[str, Dataset] = field(default_factory=dict)

    def run_id(self, epoch: int, first: int) -> str:
        """Return the id of the run of a process whose first cut is ``first``."""
        return str(uuid.uuid5(_RUNS, f"{self.namespace}/{self.name}/{epoch}/{first}"))

    def event(self, kind: EventType, run_id: str, cuts: CutRange | None, now_ms: int) -> Json:
        """Return the event of a range, or of none at the end of a run. ``now_ms``: since 1970."""
        time = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
        run_facets = {} if cuts is None else {"headgate_cuts": _cuts_facet(cuts)}
        job_type = {"processingType": "STREAMING", "integration": "HEADGATE", "jobType": "APP"}
        return {
            "eventType": kind.value,
            "eventTime": time,
            "producer": PRODUCER,
            "schemaURL": _EVENT,
            "run": {"runId": run_id, "facets": run_facets},
            "job": {"namespace": self.namespace, "name": self.name, "facets": {"jobType": _facet(_JOB_TYPE, job_type)}},
            "inputs": [] if cuts is None else self._inputs(cuts),
            "outputs": [] if cuts is None else self._outputs(cuts),
        }

    def _inputs(self, cuts: CutRange) -> list[Json]:
        return [
            _dataset(self.inputs[topic])
            | {
                "inputFacets": {
                    "inputStatistics": _facet(_READ, {"rowCount": cuts.count(topic)}),
                    "headgate_offsets": _facet(
                        _own("OffsetsInputDatasetFacet"), {"from": cuts.starts.get(topic, {}), "to": cuts.ends[topic]}
                    ),
                }
            }
            for topic in cuts.ends
            if topic in self.inputs
        ]

    def _outputs(self, cuts: CutRange) -> list[Json]:
        return [
            _dataset(dataset)
            | {
                "outputFacets": {
                    "outputStatistics": _facet(_WRITTEN, {"rowCount": cuts.lanes.get(lane, 0)}),
                    "headgate_lane": _facet(_own("LaneOutputDatasetFacet"), {"lane": lane}),
                }
            }
            for lane, dataset in self.outputs.items()
        ]


def schema_fields(schema: StreamSchema) -> list[tuple[str, str]]:
    """Return the name and the type of each field of a stream."""
    return [(one.name, str(one.type)) for one in schema.fields]


def _dataset(dataset: Dataset) -> dict[str, object]:
    fields = [{"name": name, "type": kind} for name, kind in dataset.fields]
    facets = {"schema": _facet(_SCHEMA, {"fields": fields})} if fields else {}
    return {"namespace": dataset.namespace, "name": dataset.name, "facets": facets}


def _cuts_facet(cuts: CutRange) -> Json:
    return _facet(
        _own("CutsRunFacet"),
        {
            "epoch": cuts.epoch,
            "firstCut": cuts.first,
            "lastCut": cuts.last,
            "events": cuts.events,
            "deadLetters": cuts.lanes.get(DEAD_LETTERS, 0),
            "deadLettersByReason": cuts.reasons,
        },
    )


def _facet(schema: str, entries: Json) -> Json:
    return {"_producer": PRODUCER, "_schemaURL": schema, **entries}


def _own(name: str) -> str:
    return f"urn:headgate:openlineage:1-0-0:{name}"
