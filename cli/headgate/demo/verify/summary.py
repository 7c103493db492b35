"""The JSON of ``headgate up SERVICE --json``: one schema for all services.

``passed``        nothing missing, unexpected, duplicated or wrong, and every record accounted for
``events``        input records that this run processed
``produced``      outputs: alerts, rows in topic and table, sessions, documents
``expected``      expected outputs, computed without the product
``missing``       expected outputs that do not exist
``unexpected``    outputs without an expected one
``duplicated``    copies of outputs beyond the first
``wrong``         outputs with other values than expected
``dead_letters``  records on the dead-letter lane
``details``       further counts of the service
``seconds``       duration of the command; added by the command

All counts but ``events`` cover everything since the shop was created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from headgate.console.output import Json


@dataclass(frozen=True, slots=True)
class VerifySummary:
    """One comparison of a service's output with the expected output; see the module for the fields."""

    passed: bool
    events: int
    produced: int
    expected: int
    missing: int
    unexpected: int
    duplicated: int
    wrong: int
    dead_letters: int
    details: Mapping[str, Json]

    def document(self) -> dict[str, Json]:
        """Return the fields as a JSON object."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
