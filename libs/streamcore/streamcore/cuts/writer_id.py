"""Who writes: the name under which a writer's transactions, markers and ledger rows are found and fenced."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamcore.errors import ConfigError

#: A part of a transactional id may hold neither ``.`` nor ``|``, so that two ids are never spelt the same.
_PART = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")


@dataclass(frozen=True, slots=True)
class WriterId:
    """One writer of one app in one epoch: ``driver``, or the number of an output partition."""

    app: str
    epoch: int
    writer: str = "driver"

    def __post_init__(self) -> None:
        for part in (self.app, self.writer):
            if not _PART.match(part):
                raise ConfigError(f"writer name {part!r}: use A-Z, a-z, 0-9, _ and -, at most 100")
        if self.epoch < 1:
            raise ConfigError(f"epoch {self.epoch}: the first epoch is 1")

    @property
    def transactional_id(self) -> str:
        """``app.epoch.writer``."""
        return f"{self.app}.{self.epoch}.{self.writer}"

    @property
    def key(self) -> bytes:
        """Key of the writer's markers."""
        return f"{self.app}|{self.epoch}|{self.writer}".encode()
