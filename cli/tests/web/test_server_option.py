"""The commands through a console give what they give beside the broker; two consoles lose nobody's change."""

from __future__ import annotations

import contextlib
import re
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
import yaml

from headgate.main import run
from headgate.records.stream_files import default_folder, read_document
from headgate.rules.publish import AppTopics
from streamcore.kafka.control_topic import control_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps.console_scene import answering, rule, write_rule
from tests.harness.servers.command import HEADGATE
from tests.harness.servers.console import Answer, ConsoleClient

pytestmark = pytest.mark.kafka
PLAIN = {"tags": [], "owner": "me", "description": "", "tests": []}
ROUNDS = 8


@pytest.fixture(scope="module")
def app(kafka: KafkaSettings) -> Iterator[str]:
    name = f"far-{uuid.uuid4().hex[:8]}"
    topics = AppTopics(name)
    ensure_topics(kafka, [control_topic(topics.control), TopicSpec(topics.status, 2)])
    with answering(kafka, name):
        yield name


@contextlib.contextmanager
def console_process(kafka: KafkaSettings, app: str, token_file: Path) -> Iterator[str]:
    """Run ``headgate console`` in a process of its own; yield its address."""
    words = ["console", "--app", app, "--bootstrap", kafka.bootstrap, "--port", "0", "--token-file", str(token_file)]
    process = subprocess.Popen([*HEADGATE, *words], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        printed = (re.search(r"http://[0-9.]+:\d+", line) for line in process.stderr)
        yield next(found[0] for found in printed if found)
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()


@pytest.fixture(scope="module")
def consoles(
    kafka: KafkaSettings, app: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[tuple[str, Path]]]:
    folder = tmp_path_factory.mktemp("tokens")
    with contextlib.ExitStack() as stack:
        files = [folder / "one", folder / "two"]
        yield [(stack.enter_context(console_process(kafka, app, file)), file) for file in files]


def client(console: tuple[str, Path]) -> ConsoleClient:
    return ConsoleClient(console[0], {"Authorization": f"Bearer {console[1].read_text().strip()}"})


def test_the_commands_show_the_same_through_a_console(
    kafka: KafkaSettings,
    app: str,
    consoles: list[tuple[str, Path]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    beside = ["--app", app, "--bootstrap", kafka.bootstrap]
    far = ["--app", app, "--server", consoles[0][0], "--token-file", str(consoles[0][1])]
    file = tmp_path / "r.yaml"

    def say(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run([*words])
        return code, re.sub(r'"offset": -?\d+|"batch": \w+', "", capsys.readouterr().out)

    for version in (1, 3):
        outputs = []
        for number, target in enumerate((beside, far)):
            file.write_text(write_rule(rule("same", version + number, where=f"amount > {version}", **PLAIN)))
            code, text = say("rules", "publish", str(file), *target, "--why", "a test")
            outputs.append((code, text.replace(f"version {version + number}", "version N")))
        assert outputs[0] == outputs[1] == (0, "accepted   same version N\n")
    file.write_text(write_rule(rule("same", 2, where="amount > 9", **PLAIN)))
    refused = run(["rules", "publish", str(file), *far])
    assert (refused, "not above" in capsys.readouterr().err) == (1, True)
    assert say("rules", "rollback", "same", *far) == (0, "accepted   same version 5\n")

    for version in (1, 3):
        outputs = []
        for number, target in enumerate((beside, far)):
            (tmp_path / "denied.csv").write_text(
                "value,lookup,expires\n" + f"x,{version},\n" + "y,2,2050-01-01T00:00:00Z\n" * (version < 3)
            )
            head = f"list: denied\nversion: {version + number}\nowner: me\nof: string\nvalue: long\nfile: denied.csv\n"
            file.write_text(head)
            code, text = say("lists", "publish", str(file), *target, "--why", "a test")
            outputs.append((code, text.replace(f"version {version + number}", "version N")))
        assert outputs[0] == outputs[1] == (0, "accepted   denied version N\n")
    file.write_text(file.read_text().replace("version: 4", "version: 3"))
    assert run(["lists", "publish", str(file), *far]) == 1, "version 4 is live"
    assert "not above" in capsys.readouterr().out
    for number, target in enumerate((beside, far)):
        pair = (rule(f"pair-{name}", 1, **PLAIN) for name in ("a", "b"))
        file.write_text("\n---\n".join(map(write_rule, pair)).replace("pair", f"pair{number}"))
        code, text = say("rules", "release", f"both-{number}", str(file), *target)
        assert (code, text) == (0, f"accepted   release both-{number}\n")
    file.write_text(write_rule(rule("pair1-a", 2, **PLAIN)))
    assert say("rules", "release", "change", str(file), "--delete", "pair1-b", *far)[0] == 0
    rows = say("rules", "list", *far)[1]
    assert ("pair1-a" in rows, "pair1-b" in rows) == (True, False)
    assert run(["rules", "release", "again", str(file), *far]) == 1
    assert "version 2 is not above 2" in capsys.readouterr().err

    known = read_document(default_folder() / "shop.yaml")
    fields = cast("dict[str, str]", known["fields"])
    for number, target in enumerate((beside, far)):
        fields = {**fields, f"more{number}": "string"}
        file.write_text(yaml.safe_dump({**known, "version": number + 2, "fields": fields}, sort_keys=False))
        assert say("streams", "publish", str(file), *target) == (0, f"accepted   shop version {number + 2}\n")
    file.write_text(yaml.safe_dump({**known, "version": 4}, sort_keys=False))
    code, text = say("streams", "publish", str(file), *far)
    assert (code, text.startswith("rejected   shop version 4: "), "more0" in text) == (1, True, True), text
    file.write_text("name: shop\nfields: {}\n")
    assert run(["streams", "publish", str(file), *far]) == 1
    capsys.readouterr()
    for words in (["rules", "list"], ["rules", "list", "--rule", "same"], ["lists", "list"], ["rules", "proposals"]):
        for form in ("text", "json"):
            assert say(*words, *far, "-o", form) == say(*words, *beside, "-o", form), words
    history = ["rules", "list", "--history", "--rule", "same"]
    assert say(*history, *far) == say(*history, *beside)
    assert say(*history, *far)[1].count("\n") >= 5


def test_a_wrong_token_server_or_app_is_said(
    consoles: list[tuple[str, Path]], app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("nothing")
    server, token = consoles[0][0], str(consoles[0][1])
    for words, message in (
        (["--app", app, "--server", server, "--token-file", str(wrong)], "no_session"),
        (["--app", app, "--server", server], "name the file with your token"),
        (["--app", "other", "--server", server, "--token-file", token], "shows no app other"),
        (["--app", app, "--server", "http://127.0.0.1:1", "--token-file", token], "no answer"),
    ):
        assert run(["rules", "list", *words]) == 1
        assert message in capsys.readouterr().err


def test_two_consoles_that_edit_one_rule_lose_nobodys_change(
    kafka: KafkaSettings, app: str, consoles: list[tuple[str, Path]]
) -> None:
    one, two = (client(console) for console in consoles)
    path = f"/api/v1/apps/{app}/rules/both"
    first = one.json("PUT", path, {"yaml": write_rule(rule("both", 1, **PLAIN))}, If_None_Match="*")
    assert first.status == 200, first.text
    told: list[tuple[str, int]] = []
    with ThreadPoolExecutor(2) as pool:
        for number in range(ROUNDS):
            etag = one.get(path).headers["etag"]
            assert two.get(path).headers["etag"] == etag
            version = one.get(path).json["newest"] + 1

            def write(who: ConsoleClient, name: str, etag: str = etag, version: int = version) -> Answer:
                text = write_rule(rule("both", version, **{**PLAIN, "description": name}))
                return who.json("PUT", path, {"yaml": text}, If_Match=etag)

            names = (f"one {number}", f"two {number}")
            answers = [*pool.map(write, (one, two), names)]
            assert sorted(answer.status for answer in answers) in ([200, 409], [200, 412], [200, 422])
            won = [name for name, answer in zip(names, answers, strict=True) if answer.status == 200]
            told.append((won[0], version))
            for shown in (one, two):
                found = shown.get(f"{path}/versions/{version}").json
                assert found["document"]["description"] == won[0], "who was told yes is in force"
    assert len(told) == ROUNDS
