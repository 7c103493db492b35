"""What the ETL app can be told, as one document: YAML or JSON, checked before anything starts.

Here is its form; what its expressions and names mean is checked by ``plan``, as soon as the document is read.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from streamcore.service.delta import DeltaDocument
from streamcore.service.documents import Document, NotNegative, Positive, StreamDocument, load_document
from streamcore.service.postgres import PostgresDocument
from streamcore.service.settings import ServiceSettings

Name = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")]
LaneName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


class InputDocument(StreamDocument):
    """One input. ``map``: a field of the model to an expression over the fields of the stream."""

    map: Annotated[dict[Name, str], Field(min_length=1)]


class Missing(enum.StrEnum):
    """What becomes of a row whose key a list does not have."""

    NULL = "null"
    DEAD_LETTER = "dead_letter"


class ListDocument(Document):
    """A list that comes through the control topic: the types of its entries and of what is looked up."""

    of: str
    value: str | None = None
    missing: Missing = Missing.NULL


class LookupDocument(Document):
    """Fields from a server: ``GET url``, in which ``{key}`` is the value of the field ``key``, answers with an object.

    ``404``: nothing is known, the fields are null. ``failed``: what becomes of a row without an answer.
    ``token_file``: sent as ``Authorization: Bearer``.
    """

    url: Annotated[str, Field(pattern=r"^https?://[^\s]*\{key\}[^\s]*$")]
    key: Name
    adds: Annotated[tuple[Name, ...], Field(min_length=1)]
    concurrency: Annotated[int, Field(gt=0, le=256)] = 16
    timeout_ms: Positive = 1_000
    attempts: Positive = 3
    pause_ms: NotNegative = 100
    cache_entries: NotNegative = 100_000
    cache_ms: NotNegative = 60_000
    missing_cache_ms: NotNegative = 10_000
    answer_bytes: Positive = 1024 * 1024
    failed: Missing = Missing.DEAD_LETTER
    token_file: Path | None = None
    ca_file: Path | None = None


class DeduplicateDocument(Document):
    """Of the rows with one ``id`` the first within ``horizon_ms`` of event time. ``duplicates_to``: a lane for the
    others; without it they are counted. ``max_ids``: per shard."""

    horizon_ms: Positive
    duplicates_to: LaneName | None = None
    max_ids: Positive = 10_000_000
    forget_oldest: bool = False


class How(enum.StrEnum):
    """How a personal field is masked (``masking``)."""

    REDACT = "redact"
    KEEP_LAST = "keep_last"
    PSEUDONYM = "pseudonym"
    NETWORK = "network"
    YEAR = "year"


class MaskDocument(Document):
    """``characters`` belong to ``keep_last``, ``key_file`` to ``pseudonym``; the key itself is never written here."""

    how: How
    characters: Annotated[int, Field(gt=0, le=100)] | None = None
    key_file: Path | None = None


class Target(enum.StrEnum):
    """Where a route ends: a topic with JSON values, or rows for a sink."""

    KAFKA = "kafka"
    DELTA = "delta"
    POSTGRES = "postgres"


class RouteDocument(Document):
    """Rows for which ``when`` is true (all, where nothing is said), with these ``columns`` (default: the whole model).

    ``key``: the columns of a record's key. ``name`` is the lane's: the topic is ``<app>.<name>``.
    """

    name: LaneName
    when: str | None = None
    to: Target = Target.KAFKA
    columns: tuple[Name, ...] = ()
    key: tuple[Name, ...] = ()


class EtlSettings(ServiceSettings):
    """The ETL app. ``model``: name to type, ``not null`` where that is meant. ``id``: the fields that name a row.

    ``rules``: conditions that a row must not violate, by name. ``derive``: fields of the model that are computed after
    look-ups and deduplication. ``otherwise``: a route for rows that no route takes, or ``dead_letter``. ``delta``,
    ``postgres``: the tables of routes that end there.
    """

    preload: ClassVar[tuple[str, ...]] = ("headgate_etl.deriving", "headgate_etl.routing", "streamcore.topology.kernel")

    app: str = "etl"
    inputs: Annotated[tuple[InputDocument, ...], Field(min_length=1)]
    model: Annotated[dict[Name, str], Field(min_length=1)]
    id: Annotated[tuple[Name, ...], Field(min_length=1)]
    rules: dict[LaneName, str] = Field(default_factory=dict)
    lists: dict[str, ListDocument] = Field(default_factory=dict)
    lookup: LookupDocument | None = None
    derive: dict[Name, str] = Field(default_factory=dict)
    mask: dict[Name, MaskDocument] = Field(default_factory=dict)
    deduplicate: DeduplicateDocument | None = None
    routes: Annotated[tuple[RouteDocument, ...], Field(min_length=1)]
    otherwise: str = Missing.DEAD_LETTER.value
    delta: DeltaDocument | None = None
    postgres: PostgresDocument | None = None

    @model_validator(mode="after")
    def _means_something(self) -> Self:
        """Everything that can be wrong is found while the document is read: ``ConfigError`` with all of it."""
        from headgate_etl.plan import plan

        plan(self)
        return self


def load_settings(path: Path) -> EtlSettings:
    """Settings from a YAML or JSON file; ``ConfigError`` lists every entry that is wrong."""
    return load_document(path, EtlSettings)
