"""The settings of a Parquet sink. How to log in at a bucket is in the environment, as for checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from streamcore.errors import ConfigError
from streamcore.settings import STRICT
from streamcore.sinks.sink import RetryPolicy
from streamcore.storage.location import LocationField

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")


@dataclass(frozen=True, slots=True, config=STRICT)
class ParquetFolderSpec:
    """The folder of a lane."""

    uri: Annotated[LocationField, Field(description="Folder of the files: a path, or s3://bucket/prefix.")]
    partition_by: Annotated[
        tuple[str, ...],
        Field(description="Columns whose values name the folders of the files: of text, whole numbers or booleans."),
    ] = ()

    def __post_init__(self) -> None:
        if len(set(self.partition_by)) != len(self.partition_by):
            raise ConfigError(f"parquet folder {self.uri}: partition_by names a column twice")


@dataclass(frozen=True, slots=True, config=STRICT)
class ParquetSettings:
    """One Parquet sink."""

    tables: Annotated[Mapping[str, ParquetFolderSpec], Field(description="Folder of each lane, by the lane's name.")]
    patience: Annotated[RetryPolicy, Field(description="How long and how often writing is retried.")] = RetryPolicy()
    name: Annotated[
        str,
        Field(description="Name of the sink, unique in the app. A folder's notes have it: never change it."),
    ] = "parquet"

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError(f"parquet sink {self.name}: no tables")
        for part in (self.name, *self.tables):
            if not _NAME.match(part):
                raise ConfigError(f"parquet sink: name {part!r}: use A-Z, a-z, 0-9, _ and -, at most 100")
        folders = [str(spec.uri).rstrip("/") for spec in self.tables.values()]
        for folder in folders:
            if any(other == folder or other.startswith(f"{folder}/") for other in _without_one(folders, folder)):
                raise ConfigError(
                    f"parquet sink {self.name}: two lanes write to {folder}; give each a folder of its own"
                )


def _without_one(folders: list[str], folder: str) -> list[str]:
    """Return the folders without the first that equals ``folder``."""
    place = folders.index(folder)
    return folders[:place] + folders[place + 1 :]
