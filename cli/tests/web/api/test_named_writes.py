"""Features and decision policies are published, deleted and released through a console, as beside the broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from headgate.main import run
from headgate.rules.publish import AppTopics
from headgate.rules.yaml_text import yaml_text
from headgate.web.access.roles import Role
from headgate.web.settings import ConsoleApp
from headgate.web.state.app_reader import AppReader
from streamcore.kafka.control_topic import control_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps.console_scene import answering, decision_policy, published_feature, rule, write_rule
from tests.harness.servers.console import ConsoleClient, program, serve

pytestmark = pytest.mark.kafka
PLAIN = {"owner": "me", "description": ""}
PATHS = ("features/usual", "decision-policies/guard")
API = "/api/v1/apps/"
Say = Callable[..., str]


@pytest.fixture
def app(kafka: KafkaSettings) -> Iterator[str]:
    name = f"named-{uuid.uuid4().hex[:8]}"
    topics = AppTopics(name)
    ensure_topics(kafka, [control_topic(topics.control), TopicSpec(topics.status, 2)])
    with answering(kafka, name):
        yield name


def texts() -> list[str]:
    return [yaml_text(published_feature("usual", 1, **PLAIN)), yaml_text(decision_policy("guard", 1, **PLAIN))]


def test_a_change_of_a_feature_or_policy_names_what_was_read(kafka: KafkaSettings, app: str) -> None:
    with serve(kafka, app) as server, closing(AppReader(kafka, ConsoleApp(name=app))) as reader:
        client, before = program(server), reader.snapshot()
        for path, text, name in zip(
            ("features/usual", "decision-policies/guard"), texts(), ("usual", "guard"), strict=True
        ):
            address = f"{API}{app}/{path}"
            assert client.json("PUT", address, {"yaml": text}).status == 428
            made = client.json("PUT", address, {"yaml": text, "why": "first"}, If_None_Match="*")
            assert (made.status, made.json["status"], made.json["rule"]) == (200, "accepted", name)
            etag = client.get(address).headers["etag"]
            assert made.headers["etag"] == etag
            again = client.json("PUT", address, {"yaml": text}, If_None_Match="*")
            assert (again.status, again.json["code"]) == (412, "changed_meanwhile")
            second = text.replace("version: 1", "version: 2")
            terms = {"If_Match": etag, "Idempotency_Key": f"one-{name}"}
            done = client.json("PUT", address, {"yaml": second}, **terms)
            assert done.json["version"] == 2
            repeated = client.json("PUT", address, {"yaml": second}, **terms)
            assert (repeated.json["offset"], repeated.json["repeated"]) == (done.json["offset"], True)
            assert client.json("PUT", address, {"yaml": second}, If_Match=etag).status == 412
            etag = done.headers["etag"]
            for wrong in (
                "no: [yaml",
                text.replace(f": {name}", ": other"),
                "id: x",
                f"{text}\n---\n{text}",
                "",
                "- a",
            ):
                answer = client.json("PUT", address, {"yaml": wrong}, If_Match=etag)
                assert (answer.status, answer.json["code"]) == (422, "invalid_rule"), wrong
            stale = client.json("PUT", address, {"yaml": text}, If_Match=etag)
            assert (stale.status, stale.json["code"]) == (409, "rejected"), "its version is not above the newest"
            etag = client.get(address).headers["etag"]
            assert client.send("DELETE", address).status == 428
            gone = client.send("DELETE", f"{address}?why=gone", headers={"If-Match": etag})
            assert (gone.status, gone.json["status"]) == (200, "deleted")
            again = client.send("DELETE", address, headers={"If-Match": gone.headers["etag"]})
            assert (again.status, again.json["code"]) == (404, "not_found")
            wrong_name = client.send("DELETE", f"{address}%20x", headers={"If-Match": '"none"'})
            assert (wrong_name.status, wrong_name.json["code"]) == (404, "not_found")
            anew = client.json("PUT", address, {"yaml": text}, If_None_Match="*")
            assert (anew.status, anew.json["version"]) == (200, 1)
        later = reader.snapshot().history
        assert (len(later.features["usual", 1]), len(later.policies["guard", 1])) == (2, 2)
        assert (before.history.features, before.history.policies) == ({}, {}), "a later read changes no snapshot"


def test_a_request_of_another_deletion_is_not_a_repeated_one(kafka: KafkaSettings, app: str) -> None:
    with serve(kafka, app) as server:
        client, api = program(server), f"{API}{app}"
        body: dict[str, object] = {"yaml": texts()[0]}
        assert client.json("PUT", f"{api}/features/usual", body, If_None_Match="*").status == 200
        body = {"delete_features": ["usual"]}
        terms = {"If_Match": client.json("POST", f"{api}/release-review", body).headers["etag"], "Idempotency_Key": "k"}
        assert client.json("POST", f"{api}/releases", {**body, "name": "gone"}, **terms).status == 200
        assert client.json("POST", f"{api}/releases", {**body, "name": "gone"}, **terms).json["repeated"]
        other = client.json("POST", f"{api}/releases", {"delete_policies": ["usual"], "name": "gone"}, **terms)
        assert (other.status, other.json["code"]) == (422, "key_reused")


def test_the_page_of_a_feature_asks_for_the_key_of_the_published_one(kafka: KafkaSettings, app: str) -> None:
    """A rule calls another feature so, whose key comes first."""
    with serve(kafka, app) as server:
        client, body = program(server), {"yaml": texts()[0]}
        assert client.json("PUT", f"{API}{app}/features/usual", body, If_None_Match="*").status == 200
        own = {"name": "usual", "of": "count(*)", "within": {"sliding": "30d", "every": "1h"}}
        entries = {"group_by": ["card"], "features": [own], "where": "usual > 3", "tests": [], "tags": []}
        body = {"yaml": write_rule(rule("cards", 1, **entries, **PLAIN))}
        assert client.json("PUT", f"{API}{app}/rules/cards", body, If_None_Match="*").status == 200
        page = client.get(f"/apps/{app}/features/usual").text
        assert ('name="k.user_id"' in page, 'name="k.card"' in page) == (True, False)


def test_who_may_not_publish_changes_nothing(kafka: KafkaSettings, app: str) -> None:
    with serve(kafka, app, role=Role.AUTHOR) as server:
        client = program(server)
        for path, text in zip(PATHS, texts(), strict=True):
            assert client.json("PUT", f"{API}{app}/{path}", {"yaml": text}, If_None_Match="*").status == 403
            assert client.send("DELETE", f"{API}{app}/{path}", headers={"If-Match": '"none"'}).status == 403


def write_folder(folder: Path, version: int, threshold: int) -> str:
    """Write a feature, a rule that reads it and a policy; return the folder."""
    folder.mkdir(exist_ok=True)
    then = {"severity": "low", "message": "m", "outcome": "block", "score": threshold}
    entries = {"group_by": ["user_id"], "features": ["usual"], "where": f"amount > {threshold} * usual", "then": then}
    (folder / "a.yaml").write_text(write_rule(rule("large", version, tags=[], tests=[], **entries, **PLAIN)))
    (folder / "usual.yaml").write_text(yaml_text(published_feature("usual", version, **PLAIN)))
    (folder / "guard.yaml").write_text(yaml_text(decision_policy("guard", version, **PLAIN)))
    return str(folder)


@pytest.fixture
def say(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Run a command through a console, and return its output."""
    with serve(kafka, app) as server:
        token = tmp_path / "token"
        token.write_text(program(server).headers["Authorization"].removeprefix("Bearer "))

        def run_command(*words: str, code: int = 0) -> str:
            capsys.readouterr()
            assert run([*words, "--app", app, "--server", server.address, "--token-file", str(token)]) == code
            printed = capsys.readouterr()
            return printed.out + printed.err

        run_command.client = program(server)  # type: ignore[attr-defined]
        yield run_command


def test_a_folder_is_published_and_released_through_a_console(app: str, tmp_path: Path, say: Say) -> None:
    client: ConsoleClient = say.client  # type: ignore[attr-defined]
    lines = say("rules", "publish", write_folder(tmp_path / "rules", 1, 3)).splitlines()
    assert [" ".join(line.split()[:4]) for line in lines] == [
        "accepted usual version 1",
        "accepted large version 1",
        "accepted guard version 1",
    ]
    released = say("rules", "release", "two", write_folder(tmp_path / "rules", 2, 4), "--why", "stricter")
    assert released == "accepted   release two\n"
    found = client.get(f"{API}{app}/releases/two").json
    assert [(one["rule"], one["version"], one["before"]) for one in found["rules"]] == [("large", 2, 1)]
    assert sorted((one["subject"], one["name"], one["version"], one["before"]) for one in found["others"]) == [
        ("decision_policy", "guard", 2, 1),
        ("feature", "usual", 2, 1),
    ]
    page = client.get(f"/apps/{app}/releases/two").text
    assert f'href="/apps/{app}/decision-policies/guard"' in page
    assert "nothing was published" in say("rules", "release", "three", str(tmp_path / "rules"), code=1)
    assert say("rules", "rollback", "--release", "two") == "accepted   release undo-two\n"
    policy = client.get(f"{API}{app}/decision-policies/guard").json
    assert (policy["policy"]["version"], policy["versions"]) == (3, [1, 2, 3])
    assert yaml.safe_load(client.get(f"{API}{app}/rules/large").json["yaml"])["where"] == "amount > 3 * usual"
    names = "rules", "release", "gone"
    (tmp_path / "rules" / "usual.yaml").unlink()
    (tmp_path / "rules" / "guard.yaml").unlink()
    alone = rule("alone", 1, tags=[], tests=[], **PLAIN)
    (tmp_path / "rules" / "a.yaml").write_text(write_rule(alone))
    deleted = "--delete", "large", "--delete-policy", "guard", "--delete-feature", "usual"
    assert say(*names, str(tmp_path / "rules"), *deleted) == "accepted   release gone\n"
    assert client.get(f"{API}{app}/features").json == client.get(f"{API}{app}/decision-policies").json == []
