"""The settings of the console: its Kafka, its apps, its address and its limits."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from headgate.web.access.roles import Role
from headgate.web.access.settings import AccessSettings
from streamcore.kafka.settings import KafkaSettings
from streamcore.service.config.base import Document, Positive

DEFAULT_PORT = 8808


class ConsoleApp(Document):
    """A rules app that the console shows."""

    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="Name of the app: the prefix of its topics."),
    ]
    streams: Annotated[
        Path | None, Field(description="Folder of the stream files (default: streams/ here, or the shipped ones).")
    ] = None
    settings: Annotated[
        Path | None,
        Field(description="Settings file of the app: the formats of its topics, and its checkpoint with its status."),
    ] = None
    stream_app: Annotated[
        str | None,
        Field(
            pattern=r"^[^/]{1,63}/[^/]{1,253}$",
            description="The app's StreamApp on Kubernetes, as NAMESPACE/NAME: its upgrades and savepoints.",
        ),
    ] = None


class ConsoleLimits(Document):
    """The limits of requests."""

    body_bytes: Annotated[Positive, Field(description="Most bytes of a request's body.")] = 1 << 20
    page_rows: Annotated[Positive, Field(description="Most rows of a page of a list.")] = 200
    scan_records: Annotated[
        Positive,
        Field(
            description="Most records of a topic that one search for alerts or dead letters reads, and of all topics "
            "of a rule one for events like it."
        ),
    ] = 50_000
    explain_records: Annotated[Positive, Field(description="Most records of a topic that one explanation reads.")] = (
        200_000
    )
    explanations: Annotated[Positive, Field(description="Most explanations and tests at once.")] = 3
    backtests: Annotated[Positive, Field(description="Most back-tests at once, of one person one.")] = 2
    backtest_records: Annotated[Positive, Field(description="Most records that one back-test reads.")] = 1_000_000
    live_pages: Annotated[Positive, Field(description="Most pages that get new alerts at once.")] = 50
    sessions: Annotated[Positive, Field(description="Most sessions; the oldest one ends when another begins.")] = 100
    wait_ms: Annotated[Positive, Field(description="Longest wait for the app's answer to a change.")] = 30_000


class ConsoleSettings(Document):
    """Settings of the console."""

    kafka: Annotated[KafkaSettings, Field(description="How to reach Kafka.")]
    apps: Annotated[tuple[ConsoleApp, ...], Field(min_length=1, description="The rules apps that it shows.")]
    host: Annotated[str, Field(description="Address to listen on; without `access` one of this machine alone.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Field(ge=0, le=65_535, description="Port that it listens on; 0: any free one.")] = DEFAULT_PORT
    role: Annotated[
        Role, Field(description="Role of who opens the printed address; viewer makes a console that changes nothing.")
    ] = Role.ADMIN
    access: Annotated[
        AccessSettings | None, Field(description="Who may what where others can reach it; none on one's own machine.")
    ] = None
    signing_key: Annotated[
        Path | None,
        Field(
            description="Key file of the console (`headgate rules new-key`), with which it signs for who is logged in."
        ),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        Field(
            description="File with address and login of the API server (default: that of `KUBECONFIG`, else the "
            "service account of the pod)."
        ),
    ] = None
    limits: Annotated[ConsoleLimits, Field(description="What a request may take.")] = ConsoleLimits()

    @model_validator(mode="after")
    def _check_host(self) -> ConsoleSettings:
        try:
            loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            loopback = False
        if not loopback and self.access is None:
            raise ValueError(f"host {self.host}: others reach it there: name `access`, or listen on 127.0.0.1 or ::1")
        return self
