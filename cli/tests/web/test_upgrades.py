"""The upgrades of an app on Kubernetes: values, time line and command, from a status that the operator has written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.local.servers.base import free_port
from headgate.main import headgate, run
from headgate.web.access.roles import Role
from headgate.web.pages.frame import Frame
from headgate.web.pages.html import upgrades_page
from headgate.web.pages.plots import WIDTH, upgrade_plot
from headgate.web.state.upgrades import UpgradeReader, read_upgrades
from headgate.web.state.values import UpgradesValue, UpgradeValue
from tests.harness.servers.recorded_api_server import GROUP, recorded_answers, serve_answers, write_kubeconfig

DAY_MS = 86_400_000


def recorded() -> UpgradesValue:
    return read_upgrades(*recorded_answers())


def page(found: UpgradesValue, now_ms: int = 0) -> str:
    frame = Frame(("shop",), "shop", "upgrades", "Upgrades", "ada", Role.VIEWER, now_ms, "headgate upgrades a/b")
    return upgrades_page(frame, found)


def upgrade(number: int, started_ms: int, length_ms: int | None) -> UpgradeValue:
    example = recorded().upgrades[0]
    end = None if length_ms is None else started_ms + length_ms
    phases = (example.phases[0].model_copy(update={"start_ms": started_ms, "end_ms": end}),)
    return example.model_copy(update={"number": number, "started_ms": started_ms, "ended_ms": end, "phases": phases})


def test_the_history_of_an_app_has_each_upgrade_with_its_phases_and_why_one_was_rolled_back() -> None:
    found = recorded()
    assert (found.stream_app, found.phase, found.version) == ("streams/rules", "RolledBack", "2")
    assert [(one.number, one.kind, one.from_version, one.to_version, one.outcome) for one in found.upgrades] == [
        (3, "upgrade", "2", "3", "RolledBack"),
        (2, "upgrade", "1", "2", "Succeeded"),
        (1, "install", "", "1", "Succeeded"),
    ]
    failed, good, install = found.upgrades
    assert [one.name for one in good.phases] == [
        *("Preflight", "Stopping", "Verifying", "AwaitingExit", "Promoting", "Starting", "Proving"),
    ]
    assert [one.part for one in good.phases] == ["prepare", *["stop"] * 5, "prove"]
    assert good.phases[-1].end_ms == good.ended_ms
    names = [one.name for one in failed.phases]
    back = names.index("RollingBack")
    assert {one.part for one in failed.phases[back:]} == {"back"}
    assert failed.rolled_back
    assert failed.reason
    assert "Correct the cause" in failed.remedy
    assert not good.rolled_back
    assert good.remedy == ""
    assert 0 < good.stopped_ms(0) < good.ended_ms - good.started_ms if good.ended_ms else False
    assert install.stopped_ms(0) == 0, "nothing ran before the first start"
    assert {one.reason for one in found.savepoints} >= {"upgrade"}


def test_a_phase_lasts_until_the_next_one_and_bars_lie_side_by_side_from_the_beginning() -> None:
    found = recorded()
    plot = upgrade_plot(found.upgrades, 0)
    for one, bars in zip(found.upgrades, plot.rows, strict=True):
        assert all(a.end_ms == b.start_ms for a, b in zip(one.phases, one.phases[1:], strict=False))
        assert bars[0].x == 0
        assert [bar.x for bar in bars] == sorted(bar.x for bar in bars)
    lengths = [(one.ended_ms or 0) - one.started_ms for one in found.upgrades]
    longest = lengths.index(max(lengths))
    last = plot.rows[longest][-1]
    assert last.x + last.width == pytest.approx(WIDTH, abs=2.1)


def test_an_upgrade_in_progress_grows_and_one_that_lasts_for_days_does_not_hide_the_others() -> None:
    short, lasting = upgrade(1, 0, 60_000), upgrade(2, 100_000, None)
    early = upgrade_plot((lasting, short), 130_000)
    assert early.marks[-1] == "1 min"
    assert early.rows[0][0].width == WIDTH / 2
    later = upgrade_plot((lasting, short), 5 * DAY_MS)
    assert later.long == [True, False]
    assert later.marks[-1] == "1 min 15 s"
    assert later.rows[1][0].width == WIDTH * 0.8


def test_the_page_marks_the_roll_back_and_says_what_to_do() -> None:
    text = page(recorded())
    assert 'class="tag bad">RolledBack' in text
    assert text.count('class="gantt"') == 3
    assert '<rect class="back"' in text
    assert "Correct the cause" in text
    assert "headgate upgrades a/b" in text


def test_an_app_without_a_cluster_and_one_without_upgrades_say_what_to_do() -> None:
    none = page(UpgradeReader(None, None).read())
    assert "--stream-app NAMESPACE/NAME" in none
    assert "No cluster is known" in none
    fresh = read_upgrades({"metadata": {"namespace": "a", "name": "b"}}, [])
    assert "No upgrade yet" in page(fresh)


def test_hostile_texts_of_a_status_stay_texts() -> None:
    raw, savepoints = recorded_answers()
    raw["status"]["upgrade"]["message"] = raw["status"]["upgrade"]["fromVersion"] = "<script>alert(1)</script>"
    raw["status"]["conditions"] = [{"type": "Degraded", "status": "True", "message": "<img src=x>"}]
    savepoints[0]["metadata"]["name"] = "<b>"
    text = page(read_upgrades(raw, savepoints))
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "<b>" not in text
    assert text.count("&lt;script&gt;") >= 2


def test_what_cannot_be_read_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    raw, _ = recorded_answers()
    odd = {**raw, "status": {"history": [{"number": "many"}]}}
    assert "operator of another version" in read_upgrades(odd, []).notes[0]
    away = UpgradeReader("streams/rules", write_kubeconfig(tmp_path / "away", f"http://127.0.0.1:{free_port()}"))
    assert "does not answer" in away.read().notes[0]
    with serve_answers({}, tmp_path) as kubeconfig:
        assert "kubectl get streamapps" in UpgradeReader("streams/rules", kubeconfig).read().notes[0]
    assert "no login" in UpgradeReader("streams/rules", None).read().notes[0]


def test_the_command_shows_the_upgrades_of_a_cluster_and_an_answer_serves_many_pages(tmp_path: Path) -> None:
    raw, savepoints = recorded_answers()
    answers: dict[str, object] = {f"{GROUP}/streams/streamapps/rules": raw}
    clock = [0.0]
    with serve_answers(answers, tmp_path) as kubeconfig:
        reader = UpgradeReader("streams/rules", kubeconfig, lambda: clock[0])
        without = reader.read()
        assert "savepoints cannot be listed" in without.notes[0]
        assert len(without.upgrades) == 3
        answers[f"{GROUP}/streams/savepoints"] = {"items": savepoints}
        assert reader.read() is without
        clock[0] = 2.0
        assert len(reader.read().savepoints) == len(savepoints)
        shown = CliRunner().invoke(headgate, ["upgrades", "streams/rules", "--kubeconfig", str(kubeconfig)])
        assert shown.exit_code == 0, shown.output
        lines = shown.output.splitlines()
        assert lines[0] == "streams/rules: RolledBack, version 2"
        assert lines[2].split()[:4] == ["3", "upgrade", "2", "3"]
        assert "RolledBack" in lines[2]
        typed = ["upgrades", "streams/rules", "--kubeconfig", str(kubeconfig), "-o", "json"]
        document = json.loads(CliRunner().invoke(headgate, typed).output)
        assert UpgradesValue.model_validate(document) == reader.read()
        assert run(["upgrades", "streams/none", "--kubeconfig", str(kubeconfig)]) == 1
    assert run(["upgrades", "streams"]) == 2


def test_the_file_of_the_environment_is_read_only_for_a_stream_app_and_only_if_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, savepoints = recorded_answers()
    answers = {f"{GROUP}/streams/streamapps/rules": raw, f"{GROUP}/streams/savepoints": {"items": savepoints}}
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    assert UpgradeReader(None, None).read().stream_app is None
    assert "no login" in UpgradeReader("streams/rules", None).read().notes[0]
    assert run(["upgrades"]) == 1, "no StreamApp is named, whatever the variable names"
    with serve_answers(answers, tmp_path) as kubeconfig:
        assert UpgradeReader("streams/rules", kubeconfig).read().version == "2"
        other = write_kubeconfig(tmp_path / "other", "http://127.0.0.1:1")
        monkeypatch.setenv("KUBECONFIG", f"{kubeconfig}:{other}")
        assert run(["upgrades", "streams/rules"]) == 0


def test_a_stream_app_and_a_console_are_not_asked_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("none")
    words = ["upgrades", "streams/rules", "--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "token")]
    assert run(words) == 1
    assert "name one of them" in capsys.readouterr().err
