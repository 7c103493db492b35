"""The form of the settings of the ETL app: YAML or JSON. ``headgate_etl.settings`` checks names and expressions."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self  # a stream's document is made of anything

from pydantic import Field, model_validator

from streamcore.service.config.documents import Document, NotNegative, Positive, StreamDocument
from streamcore.service.config.settings import AppName, ServiceSettings
from streamcore.service.config.sinks import SinkDocuments
from streamcore.sinks.postgres.settings import SslMode

Name = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")]
#: The placeholder of a lookup's key.
KEY = "{key}"
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}\Z")
_SECRET_HEADER = re.compile(r"authorization|cookie|token|secret|password|api-?key", re.IGNORECASE)
LaneName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


class OnEmpty(enum.StrEnum):
    """What an array without elements, or NULL, becomes."""

    NONE = "none"
    ROW = "row"


class ExplodeDocument(Document):
    """One row for each element of an array, as Spark's posexplode: the mapping reads element and position."""

    field: str = Field(description="Field of the stream that is an array.")
    element: Name = Field(default="element", description="Name of the column of the element in the mapping.")
    position: Name = Field(
        default="pos", description="Name of the column of its number, from 0, which belongs into an id."
    )
    empty: OnEmpty = Field(
        default=OnEmpty.NONE, description="What an array without elements becomes: none, or a row with null for both."
    )
    max_elements: Positive = Field(
        default=10_000, description="Most elements of a record; one with more is a dead letter."
    )


class InputDocument(StreamDocument):
    """One input topic and its mapping to the model."""

    map: Annotated[dict[Name, str], Field(min_length=1)] = Field(
        description="Expression over the stream's fields for each field of the model."
    )
    explode: ExplodeDocument | None = Field(
        default=None, description="Array whose elements become rows; null: a record is a row."
    )


class OnMissing(enum.StrEnum):
    """What happens to a row whose key the list or the lookup does not have."""

    NULL = "null"
    DEAD_LETTER = "dead_letter"


class ListDocument(Document):
    """A list that arrives through the control topic."""

    of: str = Field(description="Type of the list's entries, such as string.")
    value: str | None = Field(default=None, description="Type of the value of an entry; null for a list of keys only.")
    missing: OnMissing = Field(
        default=OnMissing.NULL,
        description="What happens to a row whose key the list does not have: null, or a dead letter.",
    )
    networks: bool = Field(
        default=False,
        description="Whether the entries are networks, in which an address is found. A published list says so "
        "itself; `try` and `tests` read it here.",
    )


class PostgresLookupDocument(Document):
    """A query of PostgreSQL for many keys at once."""

    host: str = Field(description="Host name or address of the server.")
    port: Annotated[int, Field(gt=0, lt=65_536)] = Field(default=5432, description="Port of the server.")
    database: str = Field(description="Database.")
    user: str = Field(description="User, who needs to read only.")
    password_file: Path | None = Field(default=None, description="File with the password.")
    password_env: str | None = Field(default=None, description="Environment variable with the password.")
    sslmode: SslMode = Field(default=SslMode.PREFER, description="TLS mode, by the names of PostgreSQL's clients.")
    ca_file: Path | None = Field(default=None, description="PEM file with the certificate authority of the server.")
    query: Annotated[str, Field(pattern=r"\{keys\}")] = Field(
        description="SELECT with the placeholder {keys}, an array, such as SELECT id, segment FROM customers "
        "WHERE id = ANY({keys}). The first column is the key, the others have the names of adds."
    )


class RedisValue(enum.StrEnum):
    """What the value of a record in Redis is."""

    HASH = "hash"
    JSON = "json"


class RedisLookupDocument(Document):
    """Records of Redis, or another server that speaks its protocol."""

    host: str = Field(description="Host name or address of the server.")
    port: Annotated[int, Field(gt=0, lt=65_536)] = Field(default=6379, description="Port of the server.")
    database: NotNegative = Field(default=0, description="Number of the database.")
    record_key: Annotated[str, Field(pattern=r"\{key\}")] = Field(
        default=KEY, description="Name of a record with the placeholder {key}, such as customer:{key}."
    )
    value: RedisValue = Field(
        default=RedisValue.HASH,
        description="What a record is: a hash, whose fields are text, or a string with a JSON object.",
    )
    user: str | None = Field(default=None, description="User; null: the server's default user.")
    password_file: Path | None = Field(default=None, description="File with the password.")
    password_env: str | None = Field(default=None, description="Environment variable with the password.")
    tls: bool = Field(default=False, description="Whether the connection uses TLS.")
    ca_file: Path | None = Field(default=None, description="PEM file with the certificate authority of the server.")


class TableLookupDocument(Document):
    """A compacted Kafka topic as a table: the last value of each record key, in each shard.

    Keys are text in UTF-8, values JSON objects; a record without a value deletes its key.
    """

    topic: str = Field(description="Compacted topic, which the app reads from its beginning.")
    fields: dict[Name, str] = Field(
        default_factory=dict,
        description="Expressions of the fields in adds over the texts key and value, such as "
        "get_json_object(value, '$.name'). A field without one is the member of its name, of its type.",
    )
    missing: OnMissing = Field(
        default=OnMissing.NULL,
        description="What happens to a row whose key the table does not have when the row arrives: null fields, or a "
        "dead letter.",
    )
    max_rows: Positive = Field(
        default=1_000_000,
        description="Most keys of the table; further ones are not stored, and counted by table_rows_rejected.",
    )


class LookupDocument(Document):
    """A lookup of fields in one store: by HTTP, in PostgreSQL, in Redis or in a Kafka table. The fields of an unknown
    key are null.

    By HTTP, the answer is a JSON object, and 404 means an unknown key.
    """

    url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] | None = Field(
        default=None, description="URL with the placeholder {key}, which body may have instead."
    )
    postgres: PostgresLookupDocument | None = Field(default=None, description="Query of PostgreSQL, in place of url.")
    redis: RedisLookupDocument | None = Field(default=None, description="Records of Redis, in place of url.")
    table: TableLookupDocument | None = Field(default=None, description="Compacted Kafka topic, in place of url.")
    body: str | None = Field(
        default=None,
        description="JSON body of a POST request, in which {key} becomes the key as a JSON string; null: GET.",
    )
    headers: dict[str, str] = Field(default_factory=dict, description="Headers of each request that are no secrets.")
    secret_headers: dict[str, Path] = Field(
        default_factory=dict, description="Files with the values of secret headers, by header."
    )
    key: Name = Field(description="Field of the model whose value replaces {key}.")
    adds: Annotated[tuple[Name, ...], Field(min_length=1)] = Field(
        description="Fields of the model that the response fills."
    )
    concurrency: Annotated[int, Field(gt=0, le=256)] = Field(
        default=16, description="Most requests in flight in one worker."
    )
    timeout_ms: Positive = Field(default=1_000, description="Milliseconds until a request counts as failed.")
    attempts: Positive = Field(default=3, description="Most attempts for one key.")
    pause_ms: NotNegative = Field(default=100, description="Milliseconds between two attempts.")
    cache_entries: NotNegative = Field(default=100_000, description="Most entries of the cache of one worker.")
    cache_ms: NotNegative = Field(default=60_000, description="Milliseconds that a response is cached.")
    missing_cache_ms: NotNegative = Field(default=10_000, description="Milliseconds that an unknown key is cached.")
    failure_budget_ms: Positive = Field(
        default=5_000,
        description="Most milliseconds of a cut and partition that failing requests may take; then the keys without an "
        "answer fail without a request. A server that answers nothing is asked once a cut until it answers.",
    )
    max_response_bytes: Positive = Field(default=1024 * 1024, description="Largest response in bytes.")
    failed: OnMissing = Field(
        default=OnMissing.DEAD_LETTER,
        description="What happens to a row without a response: null fields, or a dead letter.",
    )
    token_file: Path | None = Field(
        default=None, description="File with a token that is sent as Authorization: Bearer."
    )
    ca_file: Path | None = Field(default=None, description="PEM file with the certificate authority of the server.")

    @property
    def store(self) -> str:
        """The store that answers, for people."""
        if self.postgres is not None:
            return f"PostgreSQL {self.postgres.host}:{self.postgres.port}/{self.postgres.database}"
        if self.redis is not None:
            return f"Redis {self.redis.host}:{self.redis.port}"
        if self.table is not None:
            return f"table {self.table.topic}"
        return self.url or ""

    @model_validator(mode="after")
    def _check_request(self) -> Self:
        if sum(store is not None for store in (self.url, self.postgres, self.redis, self.table)) != 1:
            raise ValueError("one of url, postgres, redis and table is needed")
        if self.url is None:
            http = ("body", "headers", "secret_headers", "token_file", "ca_file")
            if unused := [name for name in http if getattr(self, name)]:
                raise ValueError(f"{unused[0]} is for url, and there is none")
        elif KEY not in self.url and KEY not in (self.body or ""):
            raise ValueError(f"url or body must have the placeholder {KEY}")
        if self.body is not None:
            try:
                json.loads(self.body.replace(KEY, '""'))
            except ValueError as error:
                raise ValueError(f"body: no JSON, with {KEY} as a string (without quotation marks): {error}") from None
        for name in (*self.headers, *self.secret_headers):
            if not _HEADER.match(name):
                raise ValueError(f"headers: {name!r} is no name of a header")
        if secret := next((name for name in self.headers if _SECRET_HEADER.search(name)), None):
            raise ValueError(f"headers: {secret} is a secret; name its file in secret_headers")
        return self


class DeduplicateDocument(Document):
    """Deduplication: of rows with the same id, the first within horizon_ms of event time is kept."""

    horizon_ms: Positive = Field(
        description="Most milliseconds of event time between two rows with the same id for the second to be a "
        "duplicate."
    )
    duplicates_to: LaneName | None = Field(
        default=None, description="Lane for duplicates; null: they are only counted."
    )
    max_ids: Positive = Field(default=10_000_000, description="Most ids that one shard keeps.")
    forget_oldest: bool = Field(
        default=False,
        description="Whether the oldest ids are dropped when max_ids is reached; otherwise further rows pass "
        "unchecked.",
    )


class How(enum.StrEnum):
    """The kinds of masks; ``headgate_etl.masking`` defines what each of them does."""

    REDACT = "redact"
    KEEP_LAST = "keep_last"
    PSEUDONYM = "pseudonym"
    NETWORK = "network"
    YEAR = "year"


class MaskDocument(Document):
    """How a personal field is masked. The settings name the file of the key, and never contain the key."""

    how: How = Field(description="Kind of mask.")
    characters: Annotated[int, Field(gt=0, le=100)] | None = Field(
        default=None, description="Characters at the end that keep_last leaves readable."
    )
    key_file: Path | None = Field(default=None, description="File with the key of pseudonyms, at least 16 bytes.")
    bits: Annotated[int, Field(ge=0, le=32)] | None = Field(
        default=None, description="Bits of an IPv4 address that network keeps; 24 without it."
    )
    bits_of_ipv6: Annotated[int, Field(ge=0, le=128)] | None = Field(
        default=None, description="Bits of an IPv6 address that network keeps; 48 without it."
    )


class RouteTarget(enum.StrEnum):
    """Where a route ends: a Kafka topic with JSON values, or a table, an index or an endpoint of a sink."""

    KAFKA = "kafka"
    DELTA = "delta"
    ICEBERG = "iceberg"
    OPENSEARCH = "opensearch"
    PARQUET = "parquet"
    POSTGRES = "postgres"
    WEBHOOK = "webhook"


class RouteDocument(Document):
    """A lane and the rows that it takes; its topic is <app>.<name>."""

    name: LaneName = Field(description="Name of the lane.")
    when: str | None = Field(default=None, description="Condition of the rows that the route takes; null: all rows.")
    to: RouteTarget = Field(
        default=RouteTarget.KAFKA,
        description="Where the route ends: a Kafka topic, or a table, an index or an endpoint of a sink.",
    )
    columns: tuple[Name, ...] = Field(default=(), description="Fields of the row, in order; empty: the whole model.")
    key: tuple[Name, ...] = Field(default=(), description="Fields of the record key.")
    merge: Name | None = Field(
        default=None,
        description="Field of the model with the extra fields of the input's records: they become members of the "
        "route's records, beside the columns.",
    )


class MappingDocument(Document):
    """The work of an app on its inputs: the part of the settings that can be published while the app runs."""

    version: Positive = Field(
        default=1,
        description="Version of the mapping. A change that is published while the app runs raises it; the app starts "
        "with the higher version of this file and of what was published.",
    )
    inputs: Annotated[tuple[InputDocument, ...], Field(min_length=1)] = Field(
        description="Input topics with their formats and mappings."
    )
    model: Annotated[dict[Name, str], Field(min_length=1)] = Field(
        description="Fields of the clean model: name to type, with the suffix not null where null is an error."
    )
    id: Annotated[tuple[Name, ...], Field(min_length=1)] = Field(description="Fields that identify a row.")
    rules: dict[LaneName, str] = Field(
        default_factory=dict,
        description="Conditions that a row must not violate, by name; a row that does is a dead letter.",
    )
    lists: dict[str, ListDocument] = Field(default_factory=dict, description="Lists that expressions may use, by name.")
    lookup: LookupDocument | None = Field(default=None, description="HTTP lookup; null: none.")
    lookups: dict[Name, LookupDocument] = Field(
        default_factory=dict,
        description="Further lookups by name, in this order, after lookup; the key of one may be a field that an "
        "earlier one adds.",
    )
    derive: dict[Name, str] = Field(
        default_factory=dict, description="Fields of the model that are computed after lookup and deduplication."
    )
    mask: dict[Name, MaskDocument] = Field(default_factory=dict, description="Masks of personal fields, by field.")
    deduplicate: DeduplicateDocument | None = Field(default=None, description="Deduplication; null: none.")
    routes: Annotated[tuple[RouteDocument, ...], Field(min_length=1)] = Field(
        description="Lanes that rows are sent to."
    )
    otherwise: str = Field(
        default=OnMissing.DEAD_LETTER.value, description="Route for rows that no other route takes, or dead_letter."
    )

    @property
    def all_lookups(self) -> Mapping[str, LookupDocument]:
        """The lookups in their order, by the path of their entry."""
        first = {} if self.lookup is None else {"lookup": self.lookup}
        return first | {f"lookups.{name}": each for name, each in self.lookups.items()}


class PublishedInput(InputDocument):
    """An input of a document that is published: with the content of its stream file, or the name of its stream."""

    stream: dict[str, Any] = Field(description="Document of the stream.")


class PublishedMapping(MappingDocument):
    """A document that is published while the app runs."""

    inputs: Annotated[tuple[PublishedInput, ...], Field(min_length=1)] = Field(description="Input topics.")


class MappingTestDocument(Document):
    """A test of the mapping, run by ``headgate etl test``: records, and all that they give."""

    name: Annotated[str, Field(min_length=1)] = Field(description="What the test shows, in a few words.")
    records: Annotated[tuple[Any, ...], Field(min_length=1)] = Field(
        description="Records in order of arrival: a mapping for a JSON record, a text for another format. With several "
        "inputs a mapping names its own in _stream; a text is then {_stream: NAME, _text: TEXT}. _kafka has its "
        "timestamp, key and headers in Kafka."
    )
    lists: dict[str, Any] = Field(
        default_factory=dict, description="Content of lists: for each a mapping of keys to values, or a list of keys."
    )
    lookup: dict[str, Any] = Field(
        default_factory=dict, description="Answers of the look-up: an object for each key; other keys are unknown."
    )
    expect: dict[str, tuple[dict[str, Any], ...]] = Field(
        description="Rows of each route, in any order, each with some of its columns. Dead letters are in deadletters, "
        "with code, record (its number from 1) and a part of their reason. A lane that is not named has no rows."
    )


class EtlDocument(MappingDocument, SinkDocuments, ServiceSettings):
    """Settings of the ETL app, before their names and expressions are checked."""

    app: AppName = Field(
        default="etl",
        description="Name of the app: the prefix of its topics and the key of its checkpoint and savepoints.",
    )
    secrets: dict[LaneName, Path] = Field(
        default_factory=dict,
        description="Files with the keys that expressions name, as in hmac_sha256(card, secret('cards')); at least 16 "
        "bytes each. Workers read them; no document, log or dead letter contains a key.",
    )
    tests: tuple[MappingTestDocument, ...] = Field(
        default=(), description="Tests of the mapping, which headgate etl test runs; the app does not read them."
    )
