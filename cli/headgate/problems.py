"""What is wrong with a file, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.output import Json

if TYPE_CHECKING:
    from rulecore.yamldoc import Problem


def problem_json(problem: Problem) -> Json:
    """A problem for programs."""
    return {
        "file": problem.file,
        "line": problem.place.line,
        "column": problem.place.column,
        "path": problem.path,
        "message": problem.message,
        "rule": problem.rule,
    }
