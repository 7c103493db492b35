"""`headgate up` rejects wrong options before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.demo import workspace
from headgate.main import run


def test_json_output_needs_a_number_of_events(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "--json"]) == 2
    assert "--json needs --events N" in capsys.readouterr().err


@pytest.mark.slow
def test_invalid_rules_are_rejected_with_their_line_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "a.yaml").write_text("id: a\n", encoding="utf-8")
    assert run(["up", "--data", str(tmp_path / "shop"), "--rules", str(rules)]) == 1
    assert f"{rules / 'a.yaml'}:1:1: version is missing" in capsys.readouterr().err
    assert not (tmp_path / "shop" / "workspace.json").exists()


def test_a_data_folder_that_is_in_use_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with workspace.lock_folder(tmp_path):
        assert run(["up", "--data", str(tmp_path)]) == 1
    assert "name another folder with --data" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sessions", "--rules", "rules"], "--rules: the sessions service does not take this option"),
        (["rules", "--postgres", "db:5432/shop"], "--postgres: the rules service does not take this option"),
        (["search", "--postgres-user", "headgate"], "--postgres-user: the search service does not take this option"),
        (["sessions", "--to", "delta"], "--to: the sessions service does not take this option"),
        (["etl", "--to", "delta", "--postgres", "db:5432/shop"], "--to delta needs no --postgres"),
        (["sessions", "--postgres-password-env", "SECRET"], "the login options of PostgreSQL need --postgres"),
        (["--opensearch", "http://127.0.0.1:1"], "--opensearch: the rules service does not take this option"),
        (["rules", "--opensearch-user", "me"], "--opensearch-user: the rules service does not take this option"),
        (["search", "--rules", "rules"], "--rules: the search service does not take this option"),
        (["search", "--opensearch-user", "me"], "the login options of OpenSearch need --opensearch"),
    ],
)
def test_options_of_another_service_are_rejected(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_invalid_address_of_a_database_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "sessions", "--postgres", "shop"]) == 1
    assert "write HOST:PORT/DATABASE" in capsys.readouterr().err


def test_a_login_in_the_address_of_opensearch_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "search", "--opensearch", "http://me:secret@127.0.0.1:9200"]) == 1
    errors = capsys.readouterr().err
    assert "name user and password_file" in errors
    assert "secret" not in errors
