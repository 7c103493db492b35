"""`headgate rules diff`: what publishing would change, against other files and against a running app."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import NewTopic
from headgate.main import run
from rulecore.documents.loading import load_text
from rulecore.documents.rule import canonical_json
from streamcore.errors import StreamError
from streamcore.kafka.control_topic import ControlLog, control_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics

RULE = """\
id: declined-cards
version: 1
owner: me
on: shop
where: type = 'payment' and status = 'declined'
group_by: [card]
within: {sliding: 10m, every: 1m}
having: count(*) >= 5
then: {severity: high, message: "{card}"}
"""
OTHER = """\
id: large
version: 1
owner: me
on: shop
where: amount > 5
then: {severity: low, message: large}
"""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The new rules and the old ones, equal for now."""
    new, old = tmp_path / "new", tmp_path / "old"
    for folder in (new, old):
        folder.mkdir()
        (folder / "a.yaml").write_text(RULE)
        (folder / "b.yaml").write_text(OTHER)
    return new, old


def compare(folders: tuple[Path, Path], *options: str) -> int:
    new, old = folders
    return run(["rules", "diff", str(new), "--against", str(old), *options])


def test_equal_rules_show_no_change_and_give_exit_code_0(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(folders) == 0
    assert capsys.readouterr().out == "0 added, 0 removed, 0 changed, 2 same\n"


def test_the_command_shows_a_change_entry_by_entry_and_gives_exit_code_1(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    changed = RULE.replace(">= 5", ">= 6").replace("sliding: 10m", "sliding: 30m")
    (folders[0] / "a.yaml").write_text(
        changed.replace("type = 'payment' and status = 'declined'", "status = 'declined' and 'payment' = type")
    )
    assert compare(folders) == 1
    assert capsys.readouterr().out == (
        "~ declined-cards  version 1 -> 1\n"
        "    ! would be rejected: version 1 is not above version 1, the newest; set its version to 2\n"
        "    where (equivalent)\n"
        "      - type = 'payment' and status = 'declined'\n"
        "      + status = 'declined' and 'payment' = type\n"
        "    within.sliding\n"
        "      - 10m\n"
        "      + 30m\n"
        "    having (different)\n"
        "      - count(*) >= 5\n"
        "      + count(*) >= 6\n"
        "    state: count(*) by card in panes of 1m: kept, incomplete for 20m\n"
        "0 added, 0 removed, 1 changed, 1 same; 1 would be rejected\n"
    )


def test_only_with_prune_does_the_diff_remove_other_rules(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (folders[0] / "a.yaml").unlink()
    assert compare(folders) == 0
    capsys.readouterr()
    assert compare(folders, "--prune") == 1
    assert capsys.readouterr().out.splitlines() == [
        "- declined-cards  would be removed, version 1",
        "    state: count(*) by card in panes of 1m: dropped",
        "0 added, 1 removed, 0 changed, 1 same",
    ]


def test_the_command_does_not_compare_invalid_rules_and_gives_exit_code_2(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (folders[0] / "b.yaml").write_text(OTHER.replace("amount > 5", "amuont > 5"))
    assert compare(folders) == 2
    output = capsys.readouterr().out
    assert "b.yaml:5:8: where: unknown column amuont" in output
    assert output.endswith("nothing was compared\n")


def test_json_holds_both_normal_forms(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (folders[0] / "b.yaml").write_text(OTHER.replace("amount > 5", "5.00 < amount").replace("version: 1", "version: 2"))
    assert compare(folders, "-o", "json") == 1
    changed = json.loads(capsys.readouterr().out)[1]
    assert (changed["verdict"], changed["rejected"]) == ("changed", None)
    (field,) = changed["fields"]
    assert field == {
        "path": "where",
        "old": "amount > 5",
        "new": "5.00 < amount",
        "equivalent": True,
        "normal_old": "amount > 5.00",
        "normal_new": "amount > 5.00",
    }


def test_an_unreachable_app_is_an_error_and_no_difference(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_unreachable(_kafka: KafkaSettings, topics: list[str]) -> None:
        raise StreamError(f"kafka: no answer about {topics}")

    monkeypatch.setattr("headgate.rules.publish.describe", raise_unreachable)
    assert run(["rules", "diff", str(folders[0])]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "headgate: kafka: no answer about ['shop.control', 'shop.status']\n"


@pytest.mark.kafka
def test_the_command_compares_with_the_live_rules_of_an_app(
    folders: tuple[Path, Path], kafka: KafkaSettings, new_topic: NewTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    app = new_topic("diffed")
    ensure_topics(kafka, [control_topic(f"{app}.control"), TopicSpec(f"{app}.status", 1, compacted=False)])
    live = load_text(RULE.replace("version: 1", "version: 4"))[0][0].rule
    assert live is not None
    with ControlLog(kafka, f"{app}.control") as log:
        log.publish(live.id, canonical_json(live))
        log.publish("broken", b"{")
    assert run(["rules", "diff", str(folders[0]), "--app", app, "--bootstrap", kafka.bootstrap]) == 1
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        "~ declined-cards  version 4 -> 1",
        "    ! would be rejected: version 1 is not above version 4, the newest; set its version to 5",
        "    state: count(*) by card in panes of 1m: kept",
        "+ large  new, version 1",
        "1 added, 0 removed, 1 changed, 0 same; 1 would be rejected",
    ]


POLICY = """\
decision_policy: shop
version: 1
owner: me
on: shop
decide: {order: [block, review, allow], default: allow, bands: {review: 40}}
"""
FEATURE = """\
feature: usual
version: 1
owner: me
on: shop
by: [user_id]
of: avg(amount)
within: {sliding: 30d, every: 1h}
"""


def test_decision_policies_and_features_are_compared_by_entry(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    new, _ = folders
    for folder in folders:
        (folder / "policy.yaml").write_text(POLICY)
        (folder / "usual.yaml").write_text(FEATURE)
    assert compare(folders) == 0
    assert capsys.readouterr().out == "0 added, 0 removed, 0 changed, 4 same\n"
    (new / "policy.yaml").write_text(POLICY.replace("version: 1", "version: 2").replace("40", "50"))
    (new / "usual.yaml").write_text(FEATURE.replace("avg", "max"))
    assert compare(folders) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "~ decision policy shop  version 1 -> 2",
        "    decide.bands.review",
        "      - 40",
        "      + 50",
    ]
    assert "~ feature usual  version 1 -> 1" in lines
    assert any("would be rejected: version 1 is not above version 1" in line for line in lines)
    assert compare(folders, "-o", "json") == 1
    assert [(one["subject"], one["rule"]) for one in json.loads(capsys.readouterr().out)][:2] == [
        ("decision_policy", "shop"),
        ("feature", "usual"),
    ]
    (new / "policy.yaml").unlink()
    (new / "usual.yaml").write_text(FEATURE)
    assert compare(folders, "--prune") == 1
    assert "- decision policy shop  would be removed, version 1" in capsys.readouterr().out
    assert compare(folders) == 0, "what is in no file stays"
