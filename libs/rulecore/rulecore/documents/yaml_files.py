"""Finds and reads YAML files, for rules and for lists."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rulecore.documents.yaml_reader import LoadLimits, Problem, SourceLocation, YamlDocument, one_line, read_yaml


def yaml_files(path: Path) -> list[Path]:
    """Return the file, or all ``*.yaml`` and ``*.yml`` files below a directory, in order of their paths."""
    return sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml")) if path.is_dir() else [path]


def read_file(
    file: Path, limits: LoadLimits, naming: Collection[str] | None = None
) -> tuple[list[YamlDocument], list[Problem]]:
    """Return the documents of a file without the empty ones, and the problems. An unreadable file is a problem.

    ``naming``: if given, a file whose text contains none of these texts gives no documents and no problems.
    """
    try:
        text = read_text(file, limits)
    except ValueError as error:
        return [], [Problem(str(file), SourceLocation(1, 1), "", str(error))]
    if naming is not None and not any(name in text for name in naming):
        return [], []
    documents, problems = read_yaml(text, str(file), limits)
    return [document for document in documents if document.value is not None], problems


def read_text(file: Path, limits: LoadLimits) -> str:
    """Return the text of a file, up to a byte beyond the limit; ``ValueError`` if it cannot be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(limits.file_bytes + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot be read: {one_line(error)}") from None
