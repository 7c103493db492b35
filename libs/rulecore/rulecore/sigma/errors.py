"""The error for a Sigma document that cannot be imported."""

from __future__ import annotations

from rulecore.documents.yaml_reader import PathKey


class SigmaImportError(Exception):
    """A Sigma document cannot be imported. ``path``: the faulty entry, from which ``importer`` finds file and line."""

    def __init__(self, message: str, path: PathKey = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
