"""What a process of a service answers when it cannot go on. Without a session: what is asked of it comes later."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamcore.checkpoint.epochs import Epochs
from streamcore.checkpoint.layout import AppIdentity
from streamcore.checkpoint.lease import lease_on
from streamcore.errors import Retryable
from streamcore.service import life
from streamcore.service.life import Life, Mode
from streamcore.service.mailbox import FileMailbox
from streamcore.service.report import Phase, Report
from streamcore.service.requests import Go
from streamcore.service.settings import ServiceSettings
from streamcore.spark.start import Start


class Sessionless(Start):
    """Owns what it owns."""

    def _run(self) -> None:
        self._session.set_result(SimpleNamespace(stop=lambda: None))  # type: ignore[arg-type]

    def check(self) -> None:
        """Nothing can have ended."""


class Making:
    """Makes a checkpoint with nothing."""

    def __init__(self, epochs: Epochs) -> None:
        self.epochs = epochs

    def admit(self, go: Go) -> None:
        """It may be."""

    def make(self, go: Go) -> None:
        self.epochs.checkpoint(go.epoch).prepare(AppIdentity("shop", 2), epoch=go.epoch)


class Refusing(Making):
    """Has a place that is away."""

    def make(self, go: Go) -> None:
        raise Retryable("the place is away")


class Builds:
    """Builds the runner that is rehearsed, and then none."""

    rehearsed = False

    def __call__(self, *_: object) -> Any:
        if self.rehearsed:
            raise Retryable("no broker answered")
        self.rehearsed = True
        return SimpleNamespace(rehearse=lambda *_: None)


def standby(folder: Path, kind: type[Making], monkeypatch: pytest.MonkeyPatch) -> tuple[Life[ServiceSettings], Epochs]:
    monkeypatch.setattr(life, "Start", Sessionless)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    settings = ServiceSettings.model_validate(
        {"app": "shop", "kafka": {"bootstrap": "nowhere:1"}, "checkpoint": str(folder / "shop"), "shards": 2}
    )
    epochs, box = Epochs(folder / "shop"), FileMailbox(folder / "box", is_own=True)
    box.ask('{"id":"1","do":"go","epoch":1,"begin":true}')
    builds: Any = Builds
    made: Any = lambda *_: kind(epochs)  # noqa: E731
    return Life("shop", settings, builds, box, Mode(standby=True), made), epochs


def said(folder: Path) -> Report:
    report = Report.from_json(FileMailbox(folder / "box").last_report() or "")
    assert report is not None
    return report


def test_a_go_is_not_denied_once_its_checkpoint_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked would take the epoch for one that there is not."""
    one, epochs = standby(tmp_path, Making, monkeypatch)
    with pytest.raises(Retryable, match="no broker answered"):
        one.run()
    assert epochs.made() == (1,)
    report = said(tmp_path)
    assert (report.phase, report.answers) == (Phase.FAILED, {})
    assert "no broker answered" in report.message


def test_a_go_that_made_nothing_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, epochs = standby(tmp_path, Refusing, monkeypatch)
    one._voice.refuse = stopping(one, one._voice.refuse)  # type: ignore[method-assign]
    one.run()
    assert epochs.folders() == ()
    assert "the place is away" in said(tmp_path).answers["1"].message


def test_a_go_to_what_another_process_still_holds_may_be_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, epochs = standby(tmp_path, Making, monkeypatch)
    one._voice.refuse = stopping(one, one._voice.refuse)  # type: ignore[method-assign]
    with lease_on(epochs.checkpoint(1).path):
        one.run()
    answer = said(tmp_path).answers["1"]
    assert (answer.ok, answer.retry) == (False, True)
    assert "in use by process" in answer.message


def stopping(one: Life[ServiceSettings], refuse: Any) -> Any:
    """Nothing more is asked after a refusal."""

    def refused(identity: str, why: Exception | str) -> None:
        refuse(identity, why)
        one.stop()

    return refused
