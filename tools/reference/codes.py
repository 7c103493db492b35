"""The page of the codes, from the classes that derive from ``streamcore.codes.Code`` and ``ExitCode``.

A class of codes without a section here is an error, wherever in the packages with codes it is declared.
"""

from __future__ import annotations

import headgate_etl
import headgate_operator
import headgate_rules
import headgate_search
import headgate_sessions
import rulecore.mapping
import streamcore.decode
import streamcore.sinks
from headgate.main import CommandExit
from headgate.web.problems import ProblemCode
from headgate_operator.__main__ import OperatorExit
from headgate_operator.resources.reasons import ConditionReason, EventReason, FailureReason
from headgate_operator.resources.savepoint import SavepointPhase
from headgate_operator.resources.status import Phase, UpgradeOutcome
from headgate_search.changes import ChangeCode
from rulecore.documents.status import StatusKind
from rulecore.mapping.row_codes import RowCode
from streamcore.codes import Code, ExitCode
from streamcore.control.status import DriverPhase
from streamcore.decode.reject_codes import RejectCode
from streamcore.service.main import ServiceExit
from streamcore.sinks.lake.rows import LakeRowCode
from streamcore.sinks.opensearch.bulk_lines import DocumentCode
from streamcore.sinks.postgres.row_checks import PostgresRowCode
from streamcore.windowing.model import DropReason
from streamcore.wire.lanes import DeadLetterCode
from tools.reference.markdown import code, head, plain, section, table
from tools.reference.packages import modules

_PACKAGES = (
    *(headgate_etl, headgate_operator, headgate_rules, headgate_search, headgate_sessions),
    *(rulecore.mapping, streamcore.decode, streamcore.sinks),
)
Codes = type[Code] | type[ExitCode]
_DEAD_LETTERS = (
    "A dead letter has its code in the header `reason_code` and a sentence in `reason`. `headgate deadletters list` "
    "counts them by code, and `headgate deadletters replay` sends corrected records to their source again. A row that "
    "the table of a sink rejects is a dead letter without a key: its value is the row as JSON, and the headers `sink` "
    "and `lane` name its target. It names no source record, so `replay` leaves it out. Its code is the server's own "
    "where PostgreSQL or OpenSearch rejects it: the SQLSTATE, or the type of the error. The code of a row that a "
    "webhook rejects is `http_` and the status of the answer."
)
_RULES = (
    "The lane `status` has a reply to each control record, with one of these. Errors in rules have no codes: each has "
    "its file, line and column, the path in the document and a sentence (`headgate rules check`)."
)
_OPERATOR = "`kubectl describe streamapp` shows phase, conditions, the last upgrade and the events of an app."
_CONSOLE = (
    "`/api/v1` answers a request that it refuses with `application/problem+json`; the entry `code` has one of these."
)
_SECTIONS: dict[tuple[str, str], tuple[Codes, ...]] = {
    ("Dead letters", _DEAD_LETTERS): (
        *(RejectCode, DeadLetterCode, RowCode, ChangeCode),
        *(PostgresRowCode, LakeRowCode, DocumentCode),
    ),
    ("Late rows", ""): (DropReason,),
    ("Rules and lists", _RULES): (StatusKind,),
    ("The operator", _OPERATOR): (Phase, UpgradeOutcome, FailureReason, ConditionReason, EventReason, SavepointPhase),
    ("Drivers", ""): (DriverPhase,),
    ("The console and its API", _CONSOLE): (ProblemCode,),
    ("Exit codes", ""): (CommandExit, ServiceExit, OperatorExit),
}


def page() -> str:
    """Return the page. ``ValueError`` for a class of codes that has no section."""
    list(modules(_PACKAGES))  # a class of codes is declared once its module is imported
    shown = {codes for some in _SECTIONS.values() for codes in some}
    if missing := {*Code.__subclasses__(), *ExitCode.__subclasses__()} - shown:
        raise ValueError(f"{sorted(one.__name__ for one in missing)}: give it a section in tools/reference/codes.py")
    lines = head("Codes", "Each code with when it occurs and what to do.")
    for (title, introduction), some in _SECTIONS.items():
        lines += section(title, *filter(None, [introduction]))
        for codes in some:
            rows = [(code(str(one.value)), one.occurs, one.remedy) for one in codes]
            lines += [plain(codes.__doc__ or ""), "", *table(("code", "when", "what to do"), rows)]
    return "\n".join(lines)
