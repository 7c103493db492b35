"""`headgate rules check` and `headgate rules test` with published features in the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.main import run
from rulecore.check_features import FeatureReport, check_published
from rulecore.documents.loading import load_features, load_path
from streamcore.schema import StreamSchema

STREAM = """name: pay
event_time: ts
event_id: id
keys: [[user]]
fields: {ts: timestamp not null, id: string not null, user: string, amount: double}
"""
USUAL = """feature: usual
version: 1
owner: o
on: pay
by: [user]
of: avg(amount)
within: {sliding: 30d, every: 1h}
"""
LARGE = """id: large
version: 1
owner: o
on: pay
group_by: [user]
features: [usual]
where: amount > 2 * usual and user is not null
then: {severity: low, message: "{user}: {usual}"}
tests:
  - name: t
    events: [{user: u, amount: 10}, {user: u, amount: AMOUNT}]
    expect: [{user: u, values: {usual: 10.0}}]
"""


def check(folder: Path, *texts: str) -> FeatureReport:
    (folder / "all.yaml").write_text("---\n".join(texts))
    import yaml

    return check_published(load_features(folder), {"pay": StreamSchema.parse(yaml.safe_load(STREAM))})


def test_a_problem_has_its_place_in_the_file(tmp_path: Path) -> None:
    wrong = USUAL.replace("feature: usual", "feature: other").replace("avg(amount)", "avg(amont)")
    report = check(tmp_path, USUAL, wrong, USUAL, LARGE)
    assert [(p.place.line, p.rule, p.path) for p in report.problems] == [(14, "other", "of"), (17, "usual", "feature")]
    assert report.problems[1].message == f"the name 'usual' is taken by {tmp_path / 'all.yaml'}:1"
    assert [*report.features] == ["usual"]
    assert [one.rule.id for one in load_path(tmp_path)[0] if one.rule is not None] == ["large"]


def test_a_feature_by_the_event_id_gives_a_warning(tmp_path: Path) -> None:
    report = check(tmp_path, USUAL.replace("[user]", "[user, id]"))
    assert [(p.place.line, p.path) for p in report.warnings] == [(5, "by")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "pay.yaml").write_text(STREAM)
    (tmp_path / "rules").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "rules"


def test_the_commands_take_features_from_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "usual.yaml").write_text(USUAL)
    (folder / "large.yaml").write_text(LARGE.replace("AMOUNT", "21"))
    assert run(["rules", "check", "rules", "--streams", "streams"]) == 0
    assert "1 rule and 1 feature are sound, 0 problems" in capsys.readouterr().out
    assert run(["rules", "test", "rules", "--streams", "streams"]) == 0
    (folder / "large.yaml").write_text(LARGE.replace("AMOUNT", "19"))
    assert run(["rules", "test", "rules", "--streams", "streams"]) == 1
    capsys.readouterr()
    (folder / "usual.yaml").unlink()
    assert run(["rules", "check", "rules", "--streams", "streams"]) == 1
    assert "large.yaml:6:12: features.0: there is no published feature usual" in capsys.readouterr().out
