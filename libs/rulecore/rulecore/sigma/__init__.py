"""Sigma rules, read and written again as Headgate rules.

Sigma (https://github.com/SigmaHQ/sigma-specification, versions 2.x) is the exchange format of detection engineers for
rules. ``import_rules`` takes documents and gives rules, with a note for everything that was approximated; a construct
that cannot be expressed in a Headgate rule is refused with its file and line, never left out. Sigma's logic has two
values: a field that is missing makes its condition false, and ``not`` of that is true. Headgate's conditions have SQL's
three, so ``not`` is written around ``coalesce(..., false)`` where a column may be NULL.
"""

from __future__ import annotations

from rulecore.sigma.field_map import FieldMap, read_map
from rulecore.sigma.importer import (
    CorrelationPart,
    ImportedRule,
    ImportOptions,
    ImportReport,
    RejectedDocument,
    import_rules,
)
from rulecore.sigma.yaml_writer import write_rule

__all__ = [
    "CorrelationPart",
    "FieldMap",
    "ImportOptions",
    "ImportReport",
    "ImportedRule",
    "RejectedDocument",
    "import_rules",
    "read_map",
    "write_rule",
]
