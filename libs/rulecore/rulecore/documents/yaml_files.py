"""YAML files of a folder to documents: the part that rules and lists share before their content is interpreted."""

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
    """Read the documents of a file except empty ones. A file that cannot be read is a problem of its own.

    ``naming``: no documents of a file whose text has none of these in it.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(limits.file_bytes + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return [], [Problem(str(file), SourceLocation(1, 1), "", f"cannot be read: {one_line(error)}")]
    if naming is not None and not any(name in text for name in naming):
        return [], []
    documents, problems = read_yaml(text, str(file), limits)
    return [document for document in documents if document.value is not None], problems
