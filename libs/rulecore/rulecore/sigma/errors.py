"""The one way that a Sigma rule is refused inside this package: the fault, and the entry of its document."""

from __future__ import annotations

from rulecore.documents.yaml_reader import PathKey


class SigmaImportError(Exception):
    """Caught by ``importing``, which adds file and line. ``path`` is the entry of the document that is to blame."""

    def __init__(self, message: str, path: PathKey = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
