"""``headgate status`` on the status of a service."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.main import run
from streamcore.control.channel import FileChannel, standby_channel
from streamcore.control.status import DriverPhase, DriverStatus

AWAY = "unavailable: Schema registry http://registry:8081: GET /schemas/ids/17: connection refused"


def status_at(seconds_ago: float, **values: object) -> str:
    at_ms = round((time.time() - seconds_ago) * 1000)
    return DriverStatus(DriverPhase.RUNNING, "1.2.3", at_ms=at_ms, **values).to_json()  # type: ignore[arg-type]


@pytest.fixture
def show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    settings = tmp_path / "settings.json"
    streams = [{"schema_file": str(Path("streams/shop.yaml").absolute()), "topic": "shop"}]
    kafka = {"bootstrap": "localhost:1"}
    document = {"app": "fraud", "kafka": kafka, "checkpoint": str(tmp_path / "checkpoint"), "streams": streams}
    settings.write_text(json.dumps(document))

    def call(*options: str) -> tuple[int, str]:
        code = run(["status", "--service", "rules", "--settings", str(settings), *options])
        return code, "".join(capsys.readouterr())

    return call


def test_it_shows_what_the_app_waits_for(tmp_path: Path, show: Callable[..., tuple[int, str]]) -> None:
    published = status_at(2, epoch=3, batch=812, lag_rows=40, lag_s=5.0, watermark_ms=1_800_000_000_000, message=AWAY)
    FileChannel(tmp_path / "checkpoint").publish(published)
    code, text = show()
    assert code == 0
    assert text.splitlines() == [
        "app fraud: running, version 1.2.3",
        "epoch 3, batch 812 is committed; busy 0 %",
        "lag 40 records, 5.0 s; watermark 2027-01-15 08:00:00",
        AWAY,
    ]
    code, text = show("-o", "json")
    found = json.loads(text)
    assert (found["app"], found["runs"], found["message"], found["batch"]) == ("fraud", True, AWAY, 812)


def test_a_process_that_is_silent_does_not_run(tmp_path: Path, show: Callable[..., tuple[int, str]]) -> None:
    FileChannel(tmp_path / "checkpoint").publish(status_at(90))
    code, text = show()
    assert code == 1
    assert "silent for 90 s" in text


def test_the_newest_status_counts(tmp_path: Path, show: Callable[..., tuple[int, str]]) -> None:
    FileChannel(tmp_path / "checkpoint").publish(status_at(90))
    FileChannel(standby_channel(tmp_path / "checkpoint")).publish(status_at(1, message="of the standby"))
    code, text = show()
    assert code == 0
    assert "of the standby" in text


def test_without_a_status_it_says_where_it_looked(tmp_path: Path, show: Callable[..., tuple[int, str]]) -> None:
    code, text = show()
    assert code == 1
    assert f"checkpoint {tmp_path / 'checkpoint'}: no process has published a status there" in text
    assert not (tmp_path / "checkpoint").exists(), "a look changes nothing"
