"""The settings of a program as one document. A program with settings of its own extends ``ProgramSettings``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from streamcore.service.config.base import Document
from streamcore.service.config.settings import ServiceSettings
from streamcore.service.config.sinks import SinkDocuments


class ProgramStream(Document):
    """One stream that a program reads."""

    topic: Annotated[
        str | None,
        Field(description="Topic that the records arrive on; without it the name of the stream."),
    ] = None
    files: Annotated[
        str | None,
        Field(
            description="Folder, file or s3://bucket/prefix with Parquet files, or text files with a record a line, "
            "which are read instead of the topic."
        ),
    ] = None
    header: Annotated[bool, Field(description="Whether the first line of each text file is no record.")] = False
    then_topic: Annotated[
        bool,
        Field(description="Whether the topic is read after the files, from starting_offsets on: history, then live."),
    ] = False
    reject_extra_fields: Annotated[
        bool,
        Field(description="Whether a record with fields that the stream does not declare is rejected."),
    ] = False
    reject_other_records: Annotated[
        bool,
        Field(
            description="Whether a record of the topic that is an event of none of its streams is a dead letter; "
            "otherwise it is counted."
        ),
    ] = False


class ProgramSettings(SinkDocuments, ServiceSettings):
    """Settings of a program. A lane that ends in `table(...)` has an entry of its name in one of the sinks.

    A program with settings of its own declares them in a subclass, and takes it as the argument of its function:
    ``def topology(settings: RevenueSettings) -> Topology``.
    """

    preload: ClassVar[tuple[str, ...]] = ("streamcore.topology.kernel",)

    streams: Annotated[
        dict[str, ProgramStream],
        Field(description="Where a stream of the topology comes from, by the name of the stream."),
    ] = Field(default_factory=dict)

    def stream(self, name: str) -> ProgramStream:
        """Return the settings of a stream, those by default if the document has none."""
        return self.streams.get(name, _DEFAULT_STREAM)

    def topic(self, name: str) -> str:
        """Return the topic of a stream."""
        return self.stream(name).topic or name


_DEFAULT_STREAM = ProgramStream()
