"""Changes through the API: published as the command publishes them, no lost update, repeated requests do nothing."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser

import pytest

from headgate.main import run
from headgate.rules.publish import AppTopics
from headgate.web.access.roles import Role
from headgate.web.settings import ConsoleLimits
from streamcore.kafka.control_topic import ControlLog, control_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps.console_scene import answering, rule, write_rule
from tests.harness.servers.console import Answer, ConsoleClient, browser, program, serve

pytestmark = pytest.mark.kafka


class Written:
    """A running app, and a program's client of its console."""

    def __init__(self, kafka: KafkaSettings, app: str, client: ConsoleClient, pages: ConsoleClient) -> None:
        self.kafka, self.app, self.client, self.pages = kafka, app, client, pages
        self.api = f"/api/v1/apps/{app}/rules"

    def publish(self, name: str, version: int = 1, where: str = "amount > 1", **headers: str | None) -> Answer:
        body = {"yaml": write_rule(rule(name, version, where=where, tests=[])), "why": "a test"}
        return self.client.json("PUT", f"{self.api}/{name}", body, **headers)

    def control(self) -> int:
        with ControlLog(self.kafka, AppTopics(self.app).control) as log:
            return len(log.read_log())


@pytest.fixture(scope="module")
def written(kafka: KafkaSettings) -> Iterator[Written]:
    app = f"console-{uuid.uuid4().hex[:8]}"
    topics = AppTopics(app)
    ensure_topics(kafka, [control_topic(topics.control), TopicSpec(topics.status, 2)])
    with answering(kafka, app), serve(kafka, app) as server:
        yield Written(kafka, app, program(server), browser(server))


def test_a_published_rule_is_what_the_command_lists(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    created = written.publish("listed", If_None_Match="*")
    assert (created.status, created.json["status"], created.json["version"]) == (200, "accepted", 1)
    assert run(["rules", "list", "--history", "--rule", "listed", "--app", written.app, "--bootstrap",
                written.kafka.bootstrap, "-o", "json"]) == 0  # fmt: skip
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["status"], entry["why"], entry["by"] is not None) == ("accepted", "a test", True)
    read = written.client.get(f"{written.api}/listed")
    assert read.headers["etag"] == created.headers["etag"]
    assert read.json["slots"][0]["status"] == "accepted"


def test_a_change_without_a_precondition_is_refused(written: Written) -> None:
    before = written.control()
    refused = written.publish("bare")
    assert (refused.status, refused.json["code"]) == (428, "no_precondition")
    assert written.publish("bare", If_Match="*").status == 428
    assert written.control() == before


def test_the_second_of_two_people_who_read_the_same_version_is_refused(written: Written) -> None:
    etag = written.publish("edited", If_None_Match="*").headers["etag"]
    assert written.publish("edited", If_None_Match="*").status == 412, "it exists"
    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(lambda n: written.publish("edited", 2, f"amount > {n + 2}", If_Match=etag), range(4))]
    assert sorted(one.status for one in answers) == [200, 412, 412, 412]
    lost = next(one for one in answers if one.status == 412)
    winner = next(one for one in answers if one.status == 200)
    assert (lost.json["code"], lost.headers["etag"]) == ("changed_meanwhile", winner.headers["etag"])


def test_a_change_beside_the_console_is_seen_before_the_next_one(written: Written) -> None:
    etag = written.publish("beside", If_None_Match="*").headers["etag"]
    with ControlLog(written.kafka, AppTopics(written.app).control) as log:
        log.publish("beside", write_rule(rule("beside", 2, tests=[])).encode())
    assert written.publish("beside", 3, If_Match=etag).status == 412


def test_a_repeated_request_does_nothing_and_answers_the_same_also_after_a_restart(written: Written) -> None:
    first = written.publish("once", If_None_Match="*", Idempotency_Key="key-1")
    before = written.control()
    again = written.publish("once", If_None_Match="*", Idempotency_Key="key-1")
    with serve(written.kafka, written.app) as other:
        client = Written(written.kafka, written.app, program(other), browser(other))
        later = client.publish("once", If_None_Match="*", Idempotency_Key="key-1")
    assert written.control() == before
    assert [one.json["offset"] for one in (again, later)] == [first.json["offset"]] * 2
    assert [one.json["repeated"] for one in (first, again, later)] == [False, True, True]
    other_body = written.publish("once", 2, If_Match=first.headers["etag"], Idempotency_Key="key-1")
    assert (other_body.status, other_body.json["code"]) == (422, "key_reused")


def test_a_list_is_published_with_its_etag_and_large_ones_in_parts(written: Written) -> None:
    path = f"/api/v1/apps/{written.app}/lists/numbers"

    def publish(version: int, entries: list[object], **headers: str) -> Answer:
        document = {"list": "numbers", "version": version, "owner": "me", "of": "long", "entries": entries}
        return written.client.json("PUT", path, {"yaml": json.dumps(document), "why": "a test"}, **headers)

    assert publish(1, [1]).status == 428
    assert written.client.get(path).status == 404
    first = publish(1, [1], If_None_Match="*")
    assert (first.status, first.json["status"], first.json["version"]) == (200, "accepted", 1)
    assert publish(2, [2], If_None_Match="*").status == 412
    etag = written.client.get(path).headers["etag"]
    assert etag == first.headers["etag"]
    before = written.control()
    large = publish(2, [*range(500)], If_Match=etag, Idempotency_Key="numbers-2")
    assert (large.status, written.client.get(path).json["entries"]) == (200, 500)
    parts = written.control() - before
    assert parts >= 2, "a part and the head"
    assert publish(2, [*range(500)], If_Match=etag, Idempotency_Key="numbers-2").json["repeated"]
    stale = publish(3, [3], If_Match=etag)
    assert (stale.status, stale.json["code"]) == (412, "changed_meanwhile")
    etag = large.headers["etag"]
    assert publish(2, [2], If_Match=etag).status == 409, "the app rejects a version that is not above"
    etag = written.client.get(path).headers["etag"]
    assert publish(3, [*range(500)], If_Match=etag).status == 200
    assert written.control() == before + parts + 2, "its parts are there already"


def test_the_mistake_of_a_list_has_its_place_and_nothing_is_published(written: Written) -> None:
    path, before = f"/api/v1/apps/{written.app}/lists/wrong", written.control()
    head = "list: wrong\nversion: 1\nowner: me\nof: long\n"
    for rest, place in (
        ("entries: [1, x]\n", (5, "entries")),
        ("entries: [1]\nfile: a.csv\n", (6, "file")),
        ("entries: [1]\ncolour: red\n", (6, "colour")),
    ):
        refused = written.client.json("PUT", path, {"yaml": head + rest}, If_None_Match="*")
        assert (refused.status, refused.json["code"]) == (422, "invalid_list")
        (problem,) = refused.json["problems"]
        assert (problem["line"], problem["path"]) == place, problem
    other = written.client.json("PUT", f"{path}-2", {"yaml": head + "entries: [1]\n"}, If_None_Match="*")
    assert other.json["problems"][0]["path"] == "list"
    assert written.control() == before


def test_mistakes_have_their_line_and_column_and_nothing_is_published(written: Written) -> None:
    before = written.control()
    text = "id: faulty\nversion: 1\nowner: me\non: shop\nwhere: amuont > 1\nthen:\n  severity: huge\n  message: m\n"
    refused = written.client.json("PUT", f"{written.api}/faulty", {"yaml": text}, If_None_Match="*")
    assert (refused.status, refused.json["code"]) == (422, "invalid_rule")
    assert refused.json["problems"][0]["line"] == 7
    misspelt = text.replace("huge", "high")
    check = written.client.json("POST", f"/api/v1/apps/{written.app}/rule-checks", {"yaml": misspelt}).json
    assert [(one["line"], one["column"], one["path"]) for one in check["problems"]] == [(5, 8, "where")]
    other = written.client.json("PUT", f"{written.api}/faulty", {"yaml": misspelt.replace("amuont", "amount").replace(
        "id: faulty", "id: other")}, If_None_Match="*")  # fmt: skip
    assert other.json["problems"][0]["path"] == "id"
    assert written.client.json("PUT", f"{written.api}/faulty", {"yml": ""}, If_None_Match="*").status == 422
    assert written.control() == before


def test_a_rule_is_paused_and_rolled_back_under_new_numbers(written: Written) -> None:
    etag = written.publish("turned", If_None_Match="*").headers["etag"]
    etag = written.publish("turned", 2, "amount > 2", If_Match=etag).headers["etag"]
    low = written.publish("turned", 2, "amount > 3", If_Match=etag)
    assert (low.status, low.json["problems"][0]["path"]) == (422, "version")
    paused = written.client.json("POST", f"{written.api}/turned/mode", {"mode": "paused"}, If_Match=etag)
    assert (paused.status, paused.json["version"]) == (200, 3)
    assert written.client.json("POST", f"{written.api}/turned/mode", {"mode": "off"}, If_Match=etag).status == 412
    etag = paused.headers["etag"]
    assert written.client.json("POST", f"{written.api}/turned/mode", {"mode": "off"}, If_Match=etag).status == 422
    back = written.client.json("POST", f"{written.api}/turned/rollback", {"to": 1}, If_Match=etag)
    assert (back.status, back.json["version"]) == (200, 4)
    read = written.client.get(f"{written.api}/turned").json
    assert (read["document"]["where"], read["slots"][0]["mode"]) == ("amount > 1", "live")


class Forms(HTMLParser):
    """The forms of a page: action and entries, by the words on the button."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, dict[str, str]]] = {}
        self._form, self._in_button = ("", dict[str, str]()), False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self._in_button = tag == "button"
        if tag == "form":
            self._form = (own.get("action", ""), {})
        elif tag == "input" and "name" in own:
            self._form[1][own["name"]] = own.get("value", "")

    def handle_data(self, data: str) -> None:
        if self._in_button:
            self.found.setdefault(data.strip(), self._form)
            self._in_button = False


def begin_trial(written: Written, name: str) -> dict[str, dict[str, object]]:
    """Publish version 1 live, 2 in shadow, 3 as a draft; return what has a slot."""
    etag = written.publish(name, If_None_Match="*").headers["etag"]
    for version, mode in ((2, "shadow"), (3, "draft")):
        text = write_rule(rule(name, version, where=f"amount > {version}", tests=[]))
        made = written.client.json("PUT", f"{written.api}/{name}", {"yaml": text, "mode": mode}, If_Match=etag)
        etag = made.headers["etag"]
    return slots(written, name)


def slots(written: Written, name: str) -> dict[str, dict[str, object]]:
    """Return the versions of a rule by slot."""
    return {one["slot"]: one for one in written.client.get(f"{written.api}/{name}").json["slots"]}


def press(written: Written, page: str, button: str) -> None:
    """Send the form of a page that has this button."""
    address, entries = Forms(written.pages.get(page).text).found[button]
    assert written.pages.form(address, entries).status == 303


@pytest.fixture(scope="module")
def lanes(written: Written) -> None:
    ensure_topics(written.kafka, [TopicSpec(f"{written.app}.{lane}", 1) for lane in ("alerts", "shadow")])


@pytest.mark.usefixtures("lanes")
def test_a_trial_is_promoted_as_the_version_that_the_page_shows_and_not_as_the_draft(written: Written) -> None:
    assert {slot: one["version"] for slot, one in begin_trial(written, "tried").items()} == {
        "live": 1, "candidate": 2, "draft": 3}  # fmt: skip
    press(written, f"/apps/{written.app}/rules/tried?tab=trial", "Promote to live")
    read = written.client.get(f"{written.api}/tried").json
    assert (read["document"]["where"], read["slots"][0]["mode"]) == ("amount > 2", "live")


@pytest.mark.usefixtures("lanes")
def test_the_end_of_a_trial_leaves_the_live_version_and_no_candidate(written: Written) -> None:
    begin_trial(written, "ended")
    page = f"/apps/{written.app}/rules/ended"
    press(written, f"{page}?tab=trial", "End the trial")
    assert [*slots(written, "ended")] == ["live"]
    read = written.client.get(f"{written.api}/ended").json
    assert (read["document"]["where"], read["slots"][0]["mode"]) == ("amount > 1", "live")
    shadow = {"yaml": write_rule(rule("alone", tests=[])), "mode": "shadow"}
    written.client.json("PUT", f"{written.api}/alone", shadow, If_None_Match="*")
    press(written, f"/apps/{written.app}/rules/alone?tab=trial", "End the trial")
    assert slots(written, "alone")["live"]["mode"] == "paused"


@pytest.mark.usefixtures("lanes")
def test_a_mode_is_for_the_named_version_or_the_live_one_to_pause(written: Written) -> None:
    begin_trial(written, "named")
    path = f"{written.api}/named"
    etag = written.client.get(path).headers["etag"]
    for body in ({"mode": "live"}, {"mode": "live", "version": 4}):
        refused = written.client.json("POST", f"{path}/mode", body, If_Match=etag)
        assert (refused.status, refused.json["problems"][0]["path"]) == (422, "version")
        assert "1 (live), 2 (candidate), 3 (draft)" in refused.json["detail"]
    wider = written.client.json("POST", f"{path}/mode", {"mode": "canary=10%", "version": 2}, If_Match=etag)
    assert slots(written, "named")["candidate"]["version"] == 4
    paused = written.client.json("POST", f"{path}/mode", {"mode": "paused"}, If_Match=wider.headers["etag"])
    assert paused.json["version"] == 5
    assert written.client.get(path).json["document"]["where"] == "amount > 1"
    begin_trial(written, "shown")
    press(written, f"/apps/{written.app}/rules/shown", "Pause")
    assert written.client.get(f"{written.api}/shown").json["document"]["where"] == "amount > 1"


def test_an_app_that_does_not_answer_gives_202(kafka: KafkaSettings) -> None:
    topics = AppTopics(f"console-{uuid.uuid4().hex[:8]}")
    ensure_topics(kafka, [control_topic(topics.control), TopicSpec(topics.status, 1)])
    with serve(kafka, topics.app) as server:
        body = {"yaml": write_rule(rule("waits", tests=[])), "wait_ms": 0}
        path = f"/api/v1/apps/{topics.app}/rules/waits"
        answer = program(server).json("PUT", path, body, If_None_Match="*")
    assert (answer.status, answer.json["status"]) == (202, None)


def test_forms_publish_and_show_mistakes_and_lost_updates_with_the_text_kept(written: Written) -> None:
    pages = f"/apps/{written.app}"
    text = write_rule(rule("formed", tests=[]))
    made = written.pages.form(f"{pages}/publish", {"yaml": text, "etag": "*", "key": "f1"})
    assert (made.status, made.headers["location"].partition("?")[0]) == (303, f"{pages}/rules/formed")
    said = written.pages.get(made.headers["location"])
    assert "Version 1: accepted" in said.text
    stale = {"yaml": text.replace('"version":1', '"version":2'), "etag": '"r0"', "key": "f2"}
    lost = written.pages.form(f"{pages}/publish", stale)
    assert lost.status == 412
    assert "was changed meanwhile" in lost.text
    assert "&#34;version&#34;:2" in lost.text
    seen = written.pages.form(f"{pages}/review", {**stale, "yaml": stale["yaml"].replace("> 100", "> 500")})
    assert "version 1 becomes 2" in seen.text
    assert "amount &gt; 500" in seen.text
    assert "It has none: each event is judged by itself." in seen.text
    wrong = written.pages.form(f"{pages}/rules/formed/edit", {"yaml": "id: formed\nversion: x", "etag": "", "key": ""})
    assert (wrong.status, "Mistakes" in wrong.text) == (200, True)


@pytest.mark.parametrize(("role", "status"), [(Role.VIEWER, 403), (Role.OPERATOR, 403), (Role.AUTHOR, 403)])
def test_who_may_not_publish_publishes_nothing(written: Written, role: Role, status: int) -> None:
    before = written.control()
    with serve(written.kafka, written.app, role=role) as server:
        client = Written(written.kafka, written.app, program(server), browser(server))
        refused = client.publish("refused", If_None_Match="*")
        form = {"yaml": write_rule(rule("refused", tests=[])), "etag": "*"}
        by_form = client.pages.form(f"/apps/{written.app}/publish", form)
    assert (refused.status, refused.json["code"], by_form.status) == (status, "not_allowed", 403)
    assert written.control() == before


def _draft(written: Written, name: str, amount: int) -> None:
    """Publish a live version of a rule, and a draft of the next one."""
    assert written.publish(name, If_None_Match="*").status == 200
    etag = written.client.get(f"{written.api}/{name}").headers["etag"]
    text = write_rule(rule(name, 2, where=f"amount > {amount}", tests=[]))
    made = written.client.json("PUT", f"{written.api}/{name}", {"yaml": text, "mode": "draft"}, If_Match=etag)
    assert made.status == 200, made.text


def test_drafts_of_several_rules_go_live_in_one_record(written: Written) -> None:
    for name, amount in (("together-a", 10), ("together-b", 20)):
        _draft(written, name, amount)
    home, before = f"/api/v1/apps/{written.app}", written.control()
    draft = written.client.get(f"{home}/release-review?rule=together-a@2&rule=together-b@2")
    assert draft.status == 200, draft.text
    shown = [(one["rule"], one["before"], one["version"]) for one in draft.json["rules"]]
    assert shown == [("together-a", 1, 3), ("together-b", 1, 3)]
    changed = {one["path"]: (one["old"], one["new"]) for one in draft.json["rules"][0]["fields"]}
    assert changed["where"] == ("amount > 1", "amount > 10")
    body = {"name": "pair", "rules": ["together-a@2", "together-b@2"], "why": "both limits"}
    assert written.client.json("POST", f"{home}/releases", body).status == 428
    made = written.client.json(
        "POST", f"{home}/releases", body, If_Match=draft.headers["etag"], Idempotency_Key="pair1"
    )
    assert (made.status, made.json["status"]) == (200, "accepted")
    again = written.client.json(
        "POST", f"{home}/releases", body, If_Match=draft.headers["etag"], Idempotency_Key="pair1"
    )
    assert (again.json["offset"], again.json["repeated"]) == (made.json["offset"], True)
    assert written.control() == before + 1, "one record"
    for name in ("together-a", "together-b"):
        (slot,) = written.client.get(f"{written.api}/{name}").json["slots"]
        assert (slot["slot"], slot["version"], slot["mode"]) == ("live", 3, "live")
    (release,) = (one for one in [written.client.get(f"{home}/releases/pair").json])
    assert [(one["rule"], one["before"], one["version"]) for one in release["rules"]] == shown
    taken = written.client.json("POST", f"{home}/releases", body, If_Match=draft.headers["etag"])
    assert taken.json["problems"][0]["path"] == "name"


def test_a_release_of_texts_is_reviewed_published_whole_and_refused_when_stale(written: Written) -> None:
    home = f"/api/v1/apps/{written.app}"
    for name in ("text-a", "text-b"):
        assert written.publish(name, If_None_Match="*").status == 200

    def text(version: int, where: str = "amount > 7") -> str:
        names = ("text-a", "text-c")
        return "\n---\n".join(
            write_rule(rule(name, version if name == "text-a" else 1, where=where, tests=[])) for name in names
        )

    body = {"yaml": text(2), "delete": ["text-b"]}
    review = written.client.json("POST", f"{home}/release-review", body)
    assert review.status == 200, review.text
    found = [(one["rule"], one["before"], one["version"]) for one in review.json["rules"]]
    assert (found, review.json["deleted"]) == ([("text-a", 1, 2), ("text-c", None, 1)], ["text-b"])
    low = written.client.json("POST", f"{home}/release-review", {"yaml": text(1)}).json
    assert [(one["path"], "not above 1" in one["message"]) for one in low["problems"]] == [("version", True)]
    wrong = written.client.json("POST", f"{home}/release-review", {"yaml": text(2, "amuont > 7")}).json
    assert ([one["path"] for one in wrong["problems"]], wrong["rules"]) == (["where", "where"], [])
    for other in ({"delete": ["no-such"]}, {"yaml": ""}, {"yaml": text(2), "delete": ["text-a"]}):
        assert written.client.json("POST", f"{home}/release-review", other).status in (404, 422), other
    before = written.control()
    assert written.client.json("POST", f"{home}/releases", {"name": "texts", **body}).status == 428
    assert written.client.json("POST", f"{home}/releases", {"name": "x", "rules": ["text-a@1"], **body}).status == 422
    assert written.control() == before
    etag = written.client.get(f"{written.api}/text-b").headers["etag"]
    assert written.publish("text-b", 2, If_Match=etag).status == 200
    stale = written.client.json("POST", f"{home}/releases", {"name": "texts", **body}, If_Match=review.headers["etag"])
    assert stale.status == 412, "a rule that it deletes has changed"
    done = written.client.json("POST", f"{home}/releases", {"name": "texts", **body}, If_Match=stale.headers["etag"])
    assert (done.status, done.json["status"]) == (200, "accepted")
    assert slots(written, "text-a")["live"]["version"] == 2
    assert not slots(written, "text-b")


def test_a_release_of_a_rule_that_has_changed_meanwhile_is_refused(written: Written) -> None:
    _draft(written, "raced", 10)
    home = f"/api/v1/apps/{written.app}"
    etag = written.client.get(f"{home}/release-review?rule=raced@2").headers["etag"]
    own = written.client.get(f"{written.api}/raced").headers["etag"]
    assert written.publish("raced", 3, "amount > 99", If_Match=own).status == 200
    before = written.control()
    late = written.client.json("POST", f"{home}/releases", {"name": "late", "rules": ["raced@2"]}, If_Match=etag)
    assert (late.status, late.json["code"], written.control()) == (412, "changed_meanwhile", before)
    for wrong in (["raced@9"], ["raced"], ["raced@2", "raced@3"], ["raced@" + "9" * 5_000]):
        query = "&".join(f"rule={one}" for one in wrong)
        assert written.client.get(f"{home}/release-review?{query}").status in (404, 422)


def test_the_pages_of_a_release_choose_review_and_publish(written: Written) -> None:
    _draft(written, "paged", 10)
    pages = f"/apps/{written.app}"
    assert 'value="paged@2"' in written.pages.get(f"{pages}/new-release").text
    review = written.pages.get(f"{pages}/new-release?rule=paged@2").text
    assert "version 1 becomes 3" in review
    assert "amount &gt; 10" in review
    form = {"rules": "paged@2", "name": "Wrong Name", "why": "x", "etag": "", "key": "p1"}
    refused = written.pages.form(f"{pages}/releases", form)
    assert (refused.status, "small letters" in refused.text) == (422, True)
    action, entries = Forms(review).found["Publish 1 rule"]
    assert 'value="p1"' in refused.text, "nothing was written: the same attempt"
    made = written.pages.form(action, {**entries, "name": "paged-1", "why": "x"})
    assert made.status == 303, made.text
    assert "Release paged-1: accepted" in written.pages.get(made.headers["location"]).text


def test_the_review_of_a_release_needs_no_place_for_tests(written: Written) -> None:
    """One console lets one test run at once, which runs already: the page says which rules were not tested."""
    tested = {"events": [{"type": "payment", "user_id": "u1", "amount": 11}], "expect": [{}]}
    for name, tests in (("untested", [{"name": "fires", **tested}]), ("testless", [])):
        text = write_rule(rule(name, 1, where="amount > 10", tests=tests, mode="draft"))
        body = {"yaml": text, "why": "a test"}
        assert written.client.json("PUT", f"{written.api}/{name}", body, If_None_Match="*").status == 200
    path = f"/apps/{written.app}/new-release?rule=untested@1&rule=testless@1"
    with serve(written.kafka, written.app, limits=ConsoleLimits(explanations=1)) as server:
        with server.console.working():
            page = browser(server).get(path)
            form = {"rules": "untested@1 testless@1", "name": "Wrong Name", "why": "x", "etag": "", "key": "p2"}
            refused = browser(server).form(f"/apps/{written.app}/releases", form)
        for found, status in ((page, 200), (refused, 422)):
            assert (found.status, found.text.count("Its tests did not run.")) == (status, 1)
            assert "The tests of 1 of 2 rules did not run" in found.text
            assert "Sound; it has no tests" in found.text
        assert "did not run" not in browser(server).get(path).text
