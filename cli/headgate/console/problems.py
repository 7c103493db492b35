"""The JSON form of a problem in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.console.output import Json

if TYPE_CHECKING:
    from rulecore.documents.yaml_reader import Problem


def problem_json(problem: Problem) -> Json:
    """Convert a problem to JSON."""
    return {
        "file": problem.file,
        "line": problem.place.line,
        "column": problem.place.column,
        "path": problem.path,
        "message": problem.message,
        "rule": problem.rule,
    }
