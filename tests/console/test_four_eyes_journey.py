"""J5: who writes a rule cannot approve it, a second person can; two people, each logged in at a provider."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from headgate.rules.publish import AppTopics, ChangeNote, publish
from headgate.rules.signing import KeyHolder, new_key
from headgate.rules.yaml_text import yaml_text
from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleSettings
from rulecore.governance.signatures import SigningKey
from tests.harness.apps.console_shop import ConsoleShop, payment_rule
from tests.harness.servers.chromium import DESKTOP, Visitor
from tests.harness.servers.oidc_provider import CLIENT, SECRET, OidcProvider, serve_provider

pytestmark = pytest.mark.kafka
_WAIT_MS = 120_000
GRANTS = [
    {"role": "viewer", "groups": ["*"]},
    {"role": "approver", "subjects": ["alice", "carol"]},
    {"role": "publisher", "subjects": ["bob"]},
]


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with serve_provider() as found:
        yield found


@pytest.fixture(scope="module")
def governed(
    shop: ConsoleShop, provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleServer]:
    """Ask for a second person for rules with a tag, and serve a console where people log in."""
    folder: Path = tmp_path_factory.mktemp("keys")
    (folder / "client").write_text(SECRET)
    console, admin = new_key("console", folder / "console.key"), KeyHolder("ada", SigningKey(b"a" * 32), shop.name)
    signer = {"signer": "ada", "version": 1, "key": admin.key.public, "role": "admin", "subject": "ada"}
    attests = {"signer": "console", "key": console.public, "role": "approver", "subject": None, "attests": True}
    changes = [
        admin.signer_change(signer),
        admin.signer_change({**attests, "version": 1}),
        admin.policy_change({"policy": "two", "version": 1, "tags": ["four-eyes"], "emergency_hours": 24}),
    ]
    done = publish(shop.kafka, AppTopics(shop.name), changes, ChangeNote("ada"), _WAIT_MS)
    assert all(one.response is not None and one.response.accepted for one in done), done
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    login = {"issuer": provider.address, "client_id": CLIENT, "client_secret_file": folder / "client"}
    document = {
        "kafka": shop.kafka,
        "apps": [{"name": shop.name}],
        "port": port,
        "access": {"public_address": f"http://127.0.0.1:{port}", "login": login, "grants": GRANTS},
        "signing_key": folder / "console.key",
    }
    with running(ConsoleServer(ConsoleSettings.model_validate(document))) as server:
        yield server


@contextmanager
def logged_in(browser: Browser, server: ConsoleServer, provider: OidcProvider, subject: str) -> Iterator[Visitor]:
    """Open the console as a person, who logs in at the provider."""
    context = browser.new_context(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
    context.set_default_timeout(60_000)
    visitor = Visitor(context.new_page(), server)
    visitor.page.on("console", lambda one: visitor.complaints.append(f"{one.type}: {one.text}"))
    provider.person = {"sub": subject, "groups": ["fraud"]}
    try:
        visitor.page.goto(f"{server.settings.access.public_address if server.settings.access else ''}/")
        expect(visitor.page.locator(".me .who")).to_contain_text(subject, timeout=60_000)
        visitor.page.goto("about:blank")  # the overview would load itself again while a test prepares
        yield visitor
        assert visitor.complaints == []
    finally:
        context.close()


def test_j5_a_second_person_approves_and_the_author_cannot(
    shop: ConsoleShop, browser: Browser, governed: ConsoleServer, provider: OidcProvider
) -> None:
    name = "agreed-by-two"
    with (
        logged_in(browser, governed, provider, "alice") as alice,
        logged_in(browser, governed, provider, "carol") as carol,
        logged_in(browser, governed, provider, "bob") as bob,
    ):
        alice.open(f"{shop.home}/new-rule")
        alice.page.get_by_label("Rule as YAML").fill(yaml_text(payment_rule(name, 500, tags=["four-eyes"])))
        expect(alice.page.locator("#verdict")).to_have_text("Sound; 1 test passed", timeout=60_000)
        alice.page.get_by_role("button", name="Review the change").click()
        alice.page.get_by_label("Why").fill("thieves pay 500 at once")
        alice.page.get_by_role("button", name="Publish").click()
        expect(alice.page.get_by_role("heading", level=1)).to_have_text("Access", timeout=60_000)
        expect(alice.page.get_by_role("status").first).to_contain_text("Proposed; it waits for approval")
        own = alice.page.locator("tbody tr", has_text=name)
        expect(own).to_contain_text("0 of 1")
        expect(own.get_by_role("button")).to_have_count(0)
        alice.picture("j5-author")
        own_form = alice.page.request.post(
            f"{governed.address}{shop.home}/access",
            form={"proposal": _proposal(alice, shop), "verdict": "approve", "why": "I agree with myself"},
            headers={"Origin": governed.address},
        )
        assert own_form.status == 409, "the app itself refuses the author, whatever the page shows"
        bob.open(f"{shop.home}/access")
        expect(bob.page.locator("tbody tr", has_text=name).get_by_role("button")).to_have_count(0)

        shop.pay("before-it", 600)
        shop.wait_for(lambda: shop.app.input_records >= shop.sent, "the payment before the approval")
        carol.open(f"{shop.home}/access")
        row = carol.page.locator("tbody tr", has_text=name)
        row.locator("summary").click()
        expect(row).to_contain_text("amount >= 500")
        carol.picture("j5-second-person")
        assert carol.violations() == []
        row.get_by_placeholder("Reason").fill("seen, and it is right")
        row.get_by_role("button", name="Approve").click()
        expect(carol.page.get_by_role("status").first).to_contain_text("accepted", timeout=60_000)
        expect(carol.page.locator("tbody tr", has_text=name)).to_have_count(0)
        carol.picture("j5-approved")

        shop.pay("after-it", 700)
        shop.wait_for(lambda: shop.alerts(name), "an alert of the approved rule")
        assert [one["key"] for one in shop.alerts(name)] == [{"user_id": "after-it"}]
        carol.open(f"{shop.home}/rules/{name}?tab=history")
        expect(carol.page.locator("table")).to_contain_text("alice, approved by carol")
        expect(carol.page.locator("table")).to_contain_text(re.compile("live"))
        carol.picture("j5-history")


def _proposal(visitor: Visitor, shop: ConsoleShop) -> str:
    """Return the id of the only open proposal."""
    answer = visitor.page.request.get(f"{visitor.server.address}/api/v1{shop.home}/proposals")
    (one,) = answer.json()
    return str(one["proposal"])
