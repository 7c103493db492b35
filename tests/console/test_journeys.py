"""What people do with the console, in a real browser, on a real broker and a real app. Each journey leaves pictures."""

from __future__ import annotations

import os
import re
import threading
import time

import pytest
from playwright.sync_api import Browser, expect

from headgate.rules.publish import policy_change
from headgate.rules.yaml_text import yaml_text
from streamcore.kafka.readers import Follower, end_offsets
from tests.harness.apps.console_shop import BLOCK, POLICY, ConsoleShop, payment_rule
from tests.harness.servers.chromium import PHONE, Visitor, visit

pytestmark = pytest.mark.kafka
#: Whether milliseconds count: on a machine that does nothing else.
MEASURES = "HEADGATE_JOURNEY_TIMES" in os.environ
RELEASE = int(os.environ.get("HEADGATE_JOURNEY_RELEASE", "50"))

_FIRST_MS = 30_000  # the first test of a new console may wait for the imports of the kernel
#: Types a letter at the end of the text; resolves with the milliseconds until a mistake is underlined.
_UNDERLINED = """async () => {
  const area = document.getElementById("yaml"), under = document.querySelector(".under");
  area.value = area.value.replace("amount >=", "amuont >=");
  const began = performance.now();
  area.dispatchEvent(new Event("input"));
  while (!under.querySelector(".fault")) await new Promise(requestAnimationFrame);
  return [performance.now() - began, under.querySelector(".fault").textContent];
}"""
#: Resolves with the time at which the first row of new alerts is on the page.
_ARRIVED = """async () => {
  while (!document.querySelector("#live-rows tr.new")) await new Promise(requestAnimationFrame);
  return Date.now();
}"""


def test_j1_a_rule_is_written_an_unknown_field_is_underlined_and_a_red_test_turns_green(
    shop: ConsoleShop, visitor: Visitor
) -> None:
    page = visitor.page
    visitor.open(shop.home)
    page.keyboard.press("n")
    editor = page.get_by_label("Rule as YAML")
    expect(page.locator("#verdict")).to_contain_text("Sound")
    text = yaml_text(payment_rule("written-here"))
    times = []
    for _ in range(3):  # the machine is shared: the best of three
        editor.fill(text)
        expect(page.locator("#verdict")).to_have_text("Sound; 1 test passed", timeout=_FIRST_MS)
        taken, word = page.evaluate(_UNDERLINED)
        times.append(taken)
        assert word == "amuont"
    expect(page.locator(".under .line.wrong .note")).to_contain_text("did you mean amount?")
    visitor.picture("j1-unknown-field")
    assert not MEASURES or min(times) < 300, times
    editor.fill(text.replace("amount: 500", "amount: 499"))
    expect(page.locator(".under .line.failed .note")).to_contain_text("amount >= 500 is FALSE, amount 499.00")
    expect(page.locator(".results .conditions")).to_contain_text("event 1: where is FALSE")
    visitor.picture("j1-red-test")
    editor.fill(text)
    expect(page.locator(".under .line.passed .note")).to_have_text("✓ passed, 1 alert: user_id u1")
    expect(page.locator(".results")).to_contain_text("gave user_id u1: u1 paid 500.00 EUR at once")
    visitor.picture("j1-green-test")
    for amount in (700, 20):
        shop.pay("alike", amount)
    page.get_by_role("button", name="Search the newest events").click()
    expect(page.locator(".similar .fits").first).to_contain_text("satisfies it")
    expect(page.locator(".similar .near").first).to_contain_text("amount >= 500")
    expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
    visitor.picture("j1-events-like-this")
    place = text.index("amount >=")
    page.evaluate(
        "at => { const a = document.getElementById('yaml'); a.focus(); a.setSelectionRange(at, at + 6); }", place
    )
    page.keyboard.type("am")
    expect(page.get_by_role("option", name="amount")).to_have_attribute("aria-selected", "true")
    visitor.picture("j1-completion", whole=False)
    page.keyboard.press("Enter")
    expect(editor).to_have_value(text)
    expect(page.locator("#verdict")).to_have_text("Sound; 1 test passed")


def test_j2_a_back_test_is_read_in_plots_and_an_alert_of_the_new_version_is_explained(
    shop: ConsoleShop, visitor: Visitor
) -> None:
    shop.publish(payment_rule("tried-on-the-past", 800))
    for number in range(12):
        shop.pay(f"past{number}", 300 + 100 * number)
    shop.publish(payment_rule("tried-on-the-past", 500, 2, mode="shadow"))
    page = visitor.page
    visitor.open(f"{shop.home}/rules/tried-on-the-past?tab=backtest")
    page.get_by_label("Version").select_option("2")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".tag", has_text=re.compile("^done$"))).to_be_visible()
    figures = page.locator(".figures").first
    expect(figures).to_contain_text(re.compile(r"Only version 2\s*[1-9]"))
    expect(figures).to_contain_text(re.compile(r"Only version 1\s*0"))
    assert page.locator("svg.plotted rect.new").count() >= 1
    visitor.picture("j2-back-test")
    page.get_by_role("link", name="past2 paid 500.00 EUR at once").click()
    tried, live = (page.locator("section.card", has_text=f"The {one} version") for one in ("tried", "live"))
    expect(tried).to_contain_text("it fires")
    expect(live.locator(".decided", has_text="amount >= 800").last).to_contain_text("FALSE")
    visitor.picture("j2-only-new")


def test_j3_a_version_in_shadow_is_compared_and_promoted(shop: ConsoleShop, visitor: Visitor) -> None:
    shop.publish(payment_rule("tried-live", 800))
    shop.publish(payment_rule("tried-live", 500, 2, mode="shadow"))
    shop.pay("trial1", 600)
    shop.pay("trial2", 900)
    path = f"/api/v1{shop.home}/alerts?rule=tried-live&lane=shadow"
    shop.wait_for(lambda: len(shop.client.get(path).json["alerts"]) == 2, "two alerts on trial")
    shop.wait_for(lambda: len(shop.alerts("tried-live")) == 1, "an alert of the live version")
    page = visitor.page
    visitor.open(f"{shop.home}/rules/tried-live?tab=trial")
    expect(page.locator(".figures").first).to_contain_text(re.compile(r"Both\s*1\s*50 % of all"))
    expect(page.locator(".figures").first).to_contain_text(re.compile(r"Only new\s*1"))
    visitor.picture("j3-trial")
    page.get_by_role("button", name="Promote to live").click()
    expect(page.get_by_role("status").first).to_have_text("Version 3: accepted, live")
    visitor.picture("j3-promoted")


def test_j4_a_change_is_published_with_its_difference_and_reason_and_its_first_alert_is_on_the_open_page(
    shop: ConsoleShop, visitor: Visitor
) -> None:
    shop.publish(payment_rule("watched", 700))
    page = visitor.page
    visitor.open(f"{shop.home}/rules/watched?tab=yaml")
    editor = page.get_by_label("Rule as YAML")
    editor.fill(editor.input_value().replace("700", "650"))
    expect(page.locator("#verdict")).to_have_text("Sound; 1 test passed")
    page.get_by_role("button", name="Review the change").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("watched: version 1 becomes 2")
    expect(page.locator("td.added").first).to_contain_text("650")
    visitor.picture("j4-review")
    page.get_by_role("button", name="Publish").click()
    assert page.url.endswith("/review"), "without a reason nothing is published"
    page.get_by_label("Why").fill("thieves have learnt the limit")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("status").first).to_have_text("Version 2: accepted, live")
    expect(page.locator(".live .say").first).to_have_text("live")
    seen: list[float] = []
    topic = f"{shop.name}.alerts"
    with Follower(shop.kafka, [topic], since=end_offsets(shop.kafka, [topic])) as follower:

        def follow() -> None:
            while not seen:
                seen.extend(time.time() * 1000 for one in follower.poll(20) if b"watched" in (one.value or b""))

        watch = threading.Thread(target=follow)
        watch.start()
        shop.pay("u650", 660)
        shown_ms = page.evaluate(_ARRIVED)
        watch.join(30)
    expect(page.locator("#live-rows tr").first).to_contain_text("u650 paid 660.00 EUR at once")
    visitor.picture("j4-first-alert")
    assert not MEASURES or shown_ms - seen[0] < 1_000, "ms from the commit to the page"
    page.get_by_role("link", name="History").click()
    expect(page.locator("table")).to_contain_text("thieves have learnt the limit")


def test_a_decision_arrives_on_the_open_page_and_leads_to_its_alert_and_back(
    shop: ConsoleShop, visitor: Visitor
) -> None:
    shop.publish_others(policy_change(POLICY))
    shop.publish(payment_rule("decided", 700, then=BLOCK))
    page = visitor.page
    visitor.open(f"{shop.home}/decisions?rule=decided")
    expect(page.locator(".live")).to_have_attribute("data-state", "on")
    shop.pay("u77", 777)
    row = page.locator("#live-rows tr.new").first
    expect(row).to_contain_text("u77 paid 777.00 EUR at once")
    expect(row.locator(".outcome.bad")).to_have_text("block")
    row.get_by_role("link", name="u77 paid").click()
    expect(page.locator("main")).to_contain_text("computed again: the same decision")
    page.locator("li", has_text="decided").get_by_role("link", name="Its alert").click()
    expect(page.locator("h1")).to_have_text("u77 paid 777.00 EUR at once")
    page.locator(".facts").get_by_role("link", name="block").click()
    expect(page.locator("main")).to_contain_text("Rules that count")


def test_j6_why_did_u17_not_fire(shop: ConsoleShop, visitor: Visitor) -> None:
    shop.publish(payment_rule("silent", 1_000))
    shop.pay("u17", 400)
    shop.wait_for(lambda: shop.app.input_records >= shop.sent, "the payment")
    page = visitor.page
    visitor.open(f"{shop.home}/rules/silent")
    page.get_by_role("link", name="Why not").click()
    page.get_by_label("user_id").fill("u17")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".verdict").first).to_contain_text("it does not fire")
    expect(page.locator(".decided", has_text="amount >= 1000").last).to_contain_text("FALSE")
    assert "k.user_id=u17" in page.url, "the address says what was asked"
    visitor.picture("j6-why-not")
    visitor.open(f"{shop.home}/keys?column=user_id&value=u17")
    expect(page.locator("table")).to_contain_text("amount=400.00")
    visitor.picture("j6-key")


def test_j7_a_dead_letter_is_repaired_and_sent_again_exactly_once(shop: ConsoleShop, visitor: Visitor) -> None:
    shop.publish(payment_rule("repaired", 500))
    shop.pay("u77", "nine hundred")
    letters = f"/api/v1{shop.home}/dead-letters"
    shop.wait_for(lambda: "nine hundred" in shop.client.get(letters).text, "the dead letter")
    page = visitor.page
    visitor.open(f"{shop.home}/dead-letters")
    visitor.picture("j7-dead-letters")
    page.locator("tr", has_text="nine hundred").locator("a.row").first.click()
    record = page.get_by_label("Change what is wrong")
    record.fill(record.input_value().replace('"nine hundred"', "900"))
    visitor.picture("j7-repair")
    second = page.context.new_page()
    second.goto(page.url)
    page.get_by_role("button", name="Repair and send again").click()
    expect(page.get_by_role("status").first).to_have_text("It was sent again")
    shop.wait_for(lambda: len(shop.alerts("repaired")) == 1, "the alert of the repaired record")
    second.get_by_label("Change what is wrong").fill('{"other": 1}')
    second.get_by_role("button", name="Repair and send again").click()
    expect(second.get_by_role("status").first).to_have_text("It had been sent before; nothing was done")
    visitor.open(page.url.removeprefix(visitor.server.address).partition("?")[0])
    expect(page.locator(".fine")).to_contain_text("It was sent again, once")
    visitor.picture("j7-sent-once")
    (only,) = shop.replayed()
    assert b'"amount":900' in only


def test_two_drafts_are_published_as_one_release(shop: ConsoleShop, visitor: Visitor) -> None:
    for name in ("together-1", "together-2"):
        shop.publish(payment_rule(name, 9_000))
        shop.publish(payment_rule(name, 9_500, 2, mode="draft"))
    page = visitor.page
    visitor.open(f"{shop.home}/releases")
    page.get_by_role("link", name="New release").click()
    for name in ("together-1", "together-2"):
        page.get_by_label(name).check()
    visitor.picture("release-choice")
    page.get_by_role("button", name="Review the release").click()
    expect(page.locator(".released")).to_have_count(2)
    expect(page.locator("td.added").first).to_contain_text("9500")
    expect(page.locator(".released summary").first).to_have_text("Sound; 1 of 1 tests passed")
    visitor.picture("release-review")
    page.get_by_label("Name").fill("higher-limits")
    page.get_by_label("Why").fill("fewer alerts")
    page.get_by_role("button", name="Publish 2 rules").click()
    expect(page.get_by_role("status").first).to_have_text("Release higher-limits: accepted")
    visitor.picture("release-published")
    for name in ("together-1", "together-2"):
        (slot,) = shop.client.get(f"/api/v1{shop.home}/rules/{name}").json["slots"]
        assert (slot["version"], slot["mode"]) == (3, "live")


def test_a_person_takes_the_tour_or_leaves_it_and_it_does_not_come_back(shop: ConsoleShop, browser: Browser) -> None:
    with visit(browser, shop.server, tour=True) as visitor:
        page, tour = visitor.page, visitor.page.get_by_label("Tour", exact=True)
        visitor.open("/")
        for step, title in enumerate(("What needs you", "The rules", "The workbench", "Alerts, live", "Keys for"), 1):
            expect(tour).to_contain_text(title)
            expect(tour).to_contain_text(f"{step} of 5")
            expect(tour).to_be_focused()
            assert visitor.violations() == []
            page.get_by_role("button", name="Next" if step < 5 else "Done").click()
        expect(tour).to_be_hidden()
        visitor.open("/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        expect(tour).to_be_hidden()
        page.keyboard.press("?")
        page.get_by_role("button", name="Take the tour").click()
        expect(tour).to_contain_text("1 of 5")
        visitor.picture("tour", whole=False)
        page.keyboard.press("Escape")
        expect(tour).to_be_hidden()
        visitor.open(f"{shop.home}/rules")
        visitor.open("/")
        expect(tour).to_be_hidden()


def test_j9_a_release_of_many_rules_is_rolled_back_in_one_step(shop: ConsoleShop, visitor: Visitor) -> None:
    names = [f"many-{number:04d}" for number in range(RELEASE)]
    shop.publish(payment_rule(names[0], 10_000))
    before = shop.client.get(f"/api/v1{shop.home}/rules").json["total"]
    shop.release("black-friday", *(payment_rule(name, 20_000, 2, tests=[]) for name in names))
    page = visitor.page
    visitor.open(f"{shop.home}/releases")
    page.get_by_role("link", name="black-friday").click()
    expect(page.locator(".diff").first).to_contain_text("amount >= 20000")
    visitor.picture("j9-release", whole=False)
    page.get_by_label("Why").fill("too many alerts")
    page.get_by_role("button", name="Roll the release back").click()
    expect(page.get_by_role("status").first).to_have_text("Release undo-black-friday: accepted", timeout=60_000)
    visitor.picture("j9-rolled-back", whole=False)
    assert shop.client.get(f"/api/v1{shop.home}/rules").json["total"] == before
    restored = shop.client.get(f"/api/v1{shop.home}/rules/{names[0]}").json
    assert (restored["slots"][0]["version"], "10000" in restored["yaml"]) == (3, True)


def test_j10_a_rule_is_changed_by_keyboard_alone_on_a_phone(shop: ConsoleShop, browser: Browser) -> None:
    shop.publish(payment_rule("by-keyboard", 900))
    with visit(browser, shop.server, PHONE) as visitor:
        page, keys = visitor.page, visitor.page.keyboard
        visitor.open(shop.home)
        keys.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("go to rules")
        visitor.picture("j10-keys")
        keys.press("Escape")
        keys.press("g")
        keys.press("r")
        expect(page.get_by_role("heading", level=1)).to_have_text("Rules")
        keys.press("/")
        keys.type("by-keyboard")
        keys.press("Enter")
        expect(page.locator(".rows tbody tr")).to_have_count(1)
        visitor.picture("j10-rules")
        keys.press("j")
        keys.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("by-keyboard")
        assert not visitor.is_too_wide()
        for _ in range(30):
            keys.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Workbench":
                break
        keys.press("Enter")
        expect(page.locator("#verdict")).to_have_text("Sound; 1 test passed")
        keys.press("/")
        keys.press("Control+End")
        keys.type("# higher\n")
        expect(page.locator("#verdict")).to_have_text("Sound; 1 test passed")
        visitor.picture("j10-workbench")
        assert not visitor.is_too_wide()
        keys.press("Control+Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("by-keyboard: version 1 becomes 2")
        visitor.picture("j10-review")
        assert not visitor.is_too_wide()
        keys.press("/")
        keys.type("a remark")
        keys.press("Enter")
        expect(page.get_by_role("status").first).to_have_text("Version 2: accepted, live")
        visitor.picture("j10-published")
        assert not visitor.is_too_wide()
