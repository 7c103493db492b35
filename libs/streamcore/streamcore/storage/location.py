"""Where a file or a folder is: a path of this machine, or a key of a bucket, with the few operations that both have.

Exists so that code which joins names need not know which it is. A value: nothing here asks a disk or a server;
``streamcore.storage.atomic_files`` and ``streamcore.storage`` do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from streamcore.environment import EnvironmentVariable, Reader
from streamcore.errors import ConfigError

BUCKETS: Final = "s3://"
_STORES: Final = (Reader.SERVICE, Reader.COMMAND)
_URL: Final = EnvironmentVariable(
    "AWS_ENDPOINT_URL",
    "URL of the S3 server, if it is not Amazon's.",
    *_STORES,
    default="Amazon's server of the region",
)
#: The variables with the address of the server that has the buckets; the first that is set holds.
ENDPOINTS: Final = (
    EnvironmentVariable("AWS_ENDPOINT_URL_S3", f"As {_URL}; set only one of them.", *_STORES),
    _URL,
    EnvironmentVariable("AWS_ENDPOINT", f"As {_URL}; set only one of them.", *_STORES),
)
_REGION: Final = EnvironmentVariable("AWS_REGION", "Region of the S3 server.", *_STORES, default="`us-east-1`")
#: The variables with the region of the buckets; the first that is set holds.
REGIONS: Final = (
    _REGION,
    EnvironmentVariable("AWS_DEFAULT_REGION", f"As {_REGION}; set only one of them.", *_STORES),
)
ALLOW_HTTP: Final = EnvironmentVariable(
    "AWS_ALLOW_HTTP",
    "`true` or `1` if the URL of the S3 server may begin with http://: requests are not encrypted then.",
    *_STORES,
    default="`false`",
)
#: The variables with the login at the server that has the buckets; the clients of S3 read them.
LOGIN: Final = (
    EnvironmentVariable("AWS_ACCESS_KEY_ID", "Id of the access key for S3.", *_STORES),
    EnvironmentVariable("AWS_SECRET_ACCESS_KEY", "Access key for S3.", *_STORES, secret=True),
    EnvironmentVariable("AWS_SESSION_TOKEN", "Session token of a temporary access key for S3.", *_STORES, secret=True),
    EnvironmentVariable(
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "File with the token for which S3's identity service issues access keys; Kubernetes mounts it.",
        *_STORES,
    ),
    EnvironmentVariable("AWS_ROLE_ARN", "Role of the access keys that are issued for the token.", *_STORES),
)


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """``s3://bucket/key``, as a path: it has no meaning to the operating system, which rejects it."""

    url: str

    def __post_init__(self) -> None:
        if not self.url.startswith(BUCKETS) or not self.url.removeprefix(BUCKETS).strip("/"):
            raise ConfigError(f"{self.url}: no address of a bucket; write s3://bucket/prefix")
        object.__setattr__(
            self, "url", BUCKETS + "/".join(part for part in self.url[len(BUCKETS) :].split("/") if part)
        )

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{name}")

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """All but the last part; ``ConfigError`` for a bucket."""
        return ObjectPath(self.url.rpartition("/")[0])

    def with_name(self, name: str) -> ObjectPath:
        """Another one beside it."""
        return self.parent / name

    @property
    def for_spark(self) -> str:
        """As Hadoop's client takes it."""
        return "s3a://" + self.url.removeprefix(BUCKETS)


Location = Path | ObjectPath


def location(text: str | Path | ObjectPath) -> Location:
    """Parse an address as users write it."""
    if isinstance(text, ObjectPath):
        return text
    return ObjectPath(text) if isinstance(text, str) and text.startswith(BUCKETS) else Path(text)


def for_spark(place: Location) -> str:
    """Return the location as Spark and Hadoop write it."""
    return place.for_spark if isinstance(place, ObjectPath) else str(place)


def _parse_location(value: object) -> Location:
    if isinstance(value, str | Path | ObjectPath) and str(value):
        try:
            return location(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error
    raise ValueError("a path, or s3://bucket/prefix")


#: For documents.
LocationField = Annotated[
    Location,
    PlainValidator(_parse_location),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "format": "path"}),
]
