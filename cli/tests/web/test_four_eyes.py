"""A second person approves, the author cannot: by API and page, on a real broker, with tokens of a real provider."""

from __future__ import annotations

import html
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.rules.publish import AppTopics, ChangeNote, publish, release_changes
from headgate.rules.signing import KeyHolder, new_key
from headgate.rules.yaml_text import yaml_text
from headgate.web.access.rights import ConsoleSession, Grant
from headgate.web.access.roles import Role
from headgate.web.changes.propose import sign_for
from headgate.web.problems import ProblemError
from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleSettings
from rulecore.governance.signatures import SigningKey
from streamcore.kafka.control_topic import control_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps.console_scene import answering, decision_policy, rule, write_rule
from tests.harness.servers.console import Answer, ConsoleClient, browser, serve
from tests.harness.servers.oidc_provider import AUDIENCE, OidcProvider, serve_provider

pytestmark = pytest.mark.kafka
PAY = {"tags": ["payments"], "owner": "me", "description": "", "tests": []}
GRANTS = [
    {"role": "viewer", "groups": ["*"]},
    {"role": "publisher", "subjects": ["alice"]},
    {"role": "publisher", "subjects": ["erin"], "owners": ["me"]},
    {"role": "approver", "subjects": ["carol"]},
    {"role": "approver", "subjects": ["dave"], "tags": ["cards"]},
]


class Governed:
    """An app with a policy, and a console that signs for people with tokens."""

    def __init__(self, app: str, address: str, provider: OidcProvider) -> None:
        self.api, self.address, self.provider = f"/api/v1/apps/{app}", address, provider
        self.pages = f"/apps/{app}"

    def by(self, subject: str) -> ConsoleClient:
        token = self.provider.token({"sub": subject})
        return ConsoleClient(self.address, {"Authorization": f"Bearer {token}"})

    def put(self, subject: str, name: str, version: int, where: str = "amount > 1", mode: str | None = None) -> Answer:
        client, path = self.by(subject), f"{self.api}/rules/{name}"
        found = client.get(path)
        terms = {"If_Match": found.headers["etag"]} if found.status == 200 else {"If_None_Match": "*"}
        body = {"yaml": write_rule(rule(name, version, where=where, **PAY)), "why": "fraud", "mode": mode}
        return client.json("PUT", path, body, **terms)

    def proposals(self) -> list[dict[str, object]]:
        found = self.by("carol").get(f"{self.api}/proposals").json
        assert isinstance(found, list)
        return found

    def live(self, name: str) -> list[int]:
        rules = self.by("carol").get(f"{self.api}/rules?text={name}").json["rules"]
        return [one["version"] for one in rules if (one["rule"], one["slot"]) == (name, "live")]


@pytest.fixture(scope="module")
def governed(kafka: KafkaSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Governed]:
    app = f"eyes-{uuid.uuid4().hex[:8]}"
    topics, key_file = AppTopics(app), tmp_path_factory.mktemp("keys") / "console.key"
    ensure_topics(kafka, [control_topic(topics.control), TopicSpec(topics.status, 2)])
    admin, console = KeyHolder("ada", SigningKey(b"a" * 32), app), new_key("console", key_file)
    attests = {"signer": "console", "key": console.public, "role": "approver", "subject": None, "attests": True}
    changes = [
        *release_changes("first", [rule("released", 1, **PAY)], ()),
        *release_changes("second", [rule("released", 2, **PAY)], ()),
        admin.signer_change(
            {"signer": "ada", "version": 1, "key": admin.key.public, "role": "admin", "subject": "ada"}
        ),
        admin.signer_change({**attests, "version": 1}),
        admin.policy_change({"policy": "p", "version": 1, "tags": ["payments"], "emergency_hours": 24}),
    ]
    with answering(kafka, app), serve_provider() as provider:
        done = publish(kafka, topics, changes, ChangeNote("ada"), 30_000)
        assert all(one.response is not None and one.response.accepted for one in done)
        with running(_console(kafka, app, provider, key_file)) as server:
            yield Governed(app, server.address, provider)


def _console(kafka: KafkaSettings, app: str, provider: OidcProvider, key_file: Path) -> ConsoleServer:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    access = {
        "public_address": f"http://127.0.0.1:{port}",
        "tokens": {"issuer": provider.address, "audience": AUDIENCE},
        "grants": GRANTS,
    }
    document = {"kafka": kafka, "apps": [{"name": app}], "port": port, "access": access, "signing_key": key_file}
    return ConsoleServer(ConsoleSettings.model_validate(document))


def test_a_second_person_approves_and_the_author_cannot(governed: Governed) -> None:
    answer = governed.put("alice", "r", 1)
    assert (answer.status, answer.json["status"]) == (202, "proposed")
    (waiting,) = governed.proposals()
    assert (waiting["by"], waiting["needs"], waiting["approvals"]) == ("alice", 1, [])
    decision = f"{governed.api}/proposals/{waiting['proposal']}/decision"
    assert governed.by("alice").json("POST", decision, {}).status == 403
    assert governed.by("dave").json("POST", decision, {}).status == 403, "his scope is other tags"
    assert governed.live("r") == []
    page = governed.by("carol").get(f"{governed.pages}/access")
    assert "Approve" in page.text
    assert "Approve" not in governed.by("alice").get(f"{governed.pages}/access").text
    approved = governed.by("carol").json("POST", decision, {"why": "seen"})
    assert (approved.status, approved.json["status"]) == (200, "accepted")
    assert governed.live("r") == [1]
    (change, *_) = governed.by("carol").get(f"{governed.api}/audit?name=r&subject=rule").json["changes"]
    assert (change["by"], change["signed"]) == ("alice, approved by carol", True)
    audit = governed.by("carol").get(f"{governed.pages}/audit?subject=rule")
    assert "alice, approved by carol" in audit.text


def test_who_may_approve_cannot_approve_the_own_proposal(governed: Governed) -> None:
    assert governed.put("carol", "own", 1).status == 202
    (waiting,) = [one for one in governed.proposals() if one["by"] == "carol"]
    decision = f"{governed.api}/proposals/{waiting['proposal']}/decision"
    refused = governed.by("carol").json("POST", decision, {})
    assert (refused.status, refused.json["code"]) == (409, "rejected")
    assert "another subject has to approve" in refused.json["detail"]
    withdrawn = governed.by("carol").json("POST", decision, {"verdict": "refuse"})
    assert (withdrawn.status, withdrawn.json["status"]) == (200, "deleted")
    assert governed.live("own") == []


def test_shadow_needs_nobody_and_an_emergency_counts_at_once(governed: Governed) -> None:
    assert (governed.put("alice", "e", 1, mode="shadow").status, governed.live("e")) == (200, [1])
    text = write_rule(rule("e", 2, where="amount > 7", **PAY))
    path = f"{governed.api}/proposals"
    urgent = governed.by("alice").json("POST", path, {"yaml": text, "emergency": True, "why": "attack"})
    assert (urgent.status, urgent.json["status"]) == (200, "accepted")
    assert "emergency until" in urgent.json["reason"]
    assert governed.live("e") == [2]
    (flagged,) = [one for one in governed.proposals() if one["emergency_until_ms"]]
    assert flagged["emergency_until_ms"] > time.time() * 1000  # type: ignore[operator]
    bad = governed.by("alice").json("POST", path, {"yaml": "id: x"})
    assert (bad.status, bad.json["code"]) == (422, "invalid_rule")
    assert governed.by("alice").json("POST", f"{path}/{'0' * 32}/decision", {}).status == 403
    assert governed.by("carol").json("POST", f"{path}/{'0' * 32}/decision", {}).status == 404


def test_a_release_that_is_rolled_back_waits_for_approval_too(governed: Governed) -> None:
    path = f"{governed.api}/releases/second"
    alice = governed.by("alice")
    etag = alice.get(path).headers["etag"]
    asked = alice.json("POST", f"{path}/rollback", {"why": "wrong"}, If_Match=etag)
    assert (asked.status, asked.json["status"], governed.live("released")) == (202, "proposed", [2])
    form = {"etag": etag, "key": "undo", "why": "wrong"}
    by_form = alice.form(f"{governed.pages}/releases/second/rollback", form)
    assert by_form.headers["location"].startswith(f"{governed.pages}/access?decided=")
    assert "Proposed; it waits for approval" in alice.get(by_form.headers["location"]).text


def draft_page(client: ConsoleClient, governed: Governed, name: str) -> dict[str, str]:
    """Return the form of the release of a rule's first version."""
    page = client.get(f"{governed.pages}/new-release?rule={name}@1").text
    entries = dict(re.findall(r'name="(rules|etag|key)" value="([^"]*)"', page))
    return {**{entry: html.unescape(text) for entry, text in entries.items()}, "name": f"of-{name}", "why": "limits"}


def test_a_release_with_a_key_is_a_proposal_also_if_nobody_has_to_agree(governed: Governed) -> None:
    alice = governed.by("alice")
    text = write_rule(rule("free", 1, where="amount > 1", **{**PAY, "tags": []}))
    body = {"yaml": text, "mode": "draft"}
    assert alice.json("PUT", f"{governed.api}/rules/free", body, If_None_Match="*").status == 200
    form = draft_page(alice, governed, "free")
    made = alice.form(f"{governed.pages}/releases", form)
    assert made.headers["location"].startswith(f"{governed.pages}/access?decided=")
    shown = alice.get(made.headers["location"])
    assert (shown.status, "accepted: the proposal counts" in shown.text) == (200, True)
    assert governed.live("free") == [2]
    audit = alice.get(f"{governed.api}/audit?name=free&subject=rule").json["changes"]
    assert audit[0]["why"] == "release of-free: limits"


def test_a_rejected_release_can_be_tried_again(governed: Governed, kafka: KafkaSettings) -> None:
    """A console without a key: the policy refuses what nobody has signed. The next attempt is a request of its own."""
    assert governed.put("alice", "unsigned", 1, mode="shadow").status == 200
    app = governed.pages.removeprefix("/apps/")
    with serve(kafka, app) as server:
        client = browser(server)
        form = draft_page(client, governed, "unsigned")
        rejected = client.form(f"{governed.pages}/releases", form)
        assert rejected.status == 409
        (key,) = re.findall(r'name="key" value="([^"]*)"', rejected.text)
        assert len(key) == len(form["key"])
        assert key != form["key"]


def test_the_notice_of_a_decision_is_looked_up(governed: Governed) -> None:
    governed.put("alice", "noticed", 1)
    (waiting,) = [one for one in governed.proposals() if "noticed" in str(one["rules"])]
    form = {"proposal": str(waiting["proposal"]), "why": "seen", "verdict": "approve"}
    carol = governed.by("carol")
    decided = carol.form(f"{governed.pages}/access", form)
    assert decided.status == 303
    assert "accepted: the proposal counts" in carol.get(decided.headers["location"]).text
    assert "Call me" not in carol.get(f"{governed.pages}/access?done=Call+me").text
    assert carol.get(f"{governed.pages}/access?decided=999999").status == 200


def test_without_rules_the_console_signs_with_a_role_for_all_rules_or_none() -> None:
    key = KeyHolder("console", SigningKey(b"c" * 32), "shop")
    scoped = ConsoleSession("eve", (Grant(Role.PUBLISHER, tags=("payments",)),))
    with pytest.raises(ProblemError, match="no role"):
        sign_for(key, scoped, "shop", [])
    signing = sign_for(key, ConsoleSession("bob", (Grant(Role.AUTHOR),)), "shop", [])
    assert signing.person is not None
    assert signing.person.role == "author"


def test_who_publishes_for_some_owners_signs_their_decision_policies(governed: Governed) -> None:
    erin, path = governed.by("erin"), f"{governed.api}/decision-policies/guard"
    texts = [yaml_text(decision_policy("guard", version, owner="me", description="")) for version in (1, 2)]
    made = erin.json("PUT", path, {"yaml": texts[0], "why": "first"}, If_None_Match="*")
    assert (made.status, made.json["status"]) == (200, "accepted")
    body = {"yaml": texts[1]}
    etag = erin.json("POST", f"{governed.api}/release-review", body).headers["etag"]
    released = erin.json("POST", f"{governed.api}/releases", {**body, "name": "guard-2"}, If_Match=etag)
    assert (released.status, released.json["status"]) == (200, "accepted")
    other = {"yaml": texts[1].replace("version: 2", "version: 3").replace("owner: me", "owner: you")}
    refused = erin.json("PUT", path, other, If_Match=erin.get(path).headers["etag"])
    assert (refused.status, refused.json["code"]) == (403, "not_allowed")


def test_policies_signers_and_who_is_asking(governed: Governed) -> None:
    found = governed.by("alice").get(f"{governed.api}/governance").json
    assert (found["signs"], found["policies"][0]["approvals"]) == (True, 1)
    assert [one["signer"] for one in found["signers"]] == ["ada", "console"]
    session = governed.by("dave").get("/api/v1/session").json
    assert (session["subject"], session["issuer"]) == ("dave", governed.provider.address)
    assert {"role": "approver", "apps": [], "tags": ["cards"], "owners": []} in session["grants"]
