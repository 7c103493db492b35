"""Imports Sigma rules as Headgate rules.

Sigma (https://github.com/SigmaHQ/sigma-specification, versions 2.x) is an exchange format for detection rules.
``import_rules`` returns rules, with a note for each approximation. A document with a construct that a Headgate rule
cannot express is rejected with file and line; nothing is left out silently. Sigma's logic has two values: a missing
field makes its condition false, and ``not`` of that is true. Headgate's conditions have the three values of SQL, so
``not`` is written around ``coalesce(..., false)`` where a column may be NULL.
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
