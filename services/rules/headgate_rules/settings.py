"""What the rules app can be told, as one document: YAML or JSON, checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from streamcore.service.documents import NotNegative, Positive, StreamDocument, load_document
from streamcore.service.settings import ServiceSettings


class RulesSettings(ServiceSettings):
    """The rules app."""

    preload: ClassVar[tuple[str, ...]] = ("rulecore.kernel",)

    app: str = "rules"
    streams: Annotated[tuple[StreamDocument, ...], Field(min_length=1)]
    max_rules: Positive = 20_000
    max_distinct: Positive = 10_000
    max_matches: Positive = 100_000
    compare_every_ms: NotNegative = 60_000


def load_settings(path: Path) -> RulesSettings:
    """Settings from a YAML or JSON file; ``ConfigError`` lists every entry that is wrong."""
    return load_document(path, RulesSettings)
