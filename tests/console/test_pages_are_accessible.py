"""Every page, light on a desk and dark on a phone: nothing breaks WCAG 2.2 AA, nothing scrolls sideways."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from playwright.sync_api import Browser

from headgate.rules.publish import feature_change, policy_change
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.rule import Rule
from tests.harness.apps.console_shop import BLOCK, POLICY, ConsoleShop, payment_rule
from tests.harness.servers.chromium import DESKTOP, LOOK_RULES, PHONE, Theme, visit

pytestmark = pytest.mark.kafka
LOOKS: Sequence[tuple[str, tuple[int, int], Theme]] = (
    ("light", DESKTOP, "light"),
    ("dark", DESKTOP, "dark"),
    ("phone", PHONE, "dark"),
)


USUAL = PublishedFeature.model_validate(
    {
        "feature": "usual_amount",
        "version": 1,
        "owner": "payments-risk",
        "description": "Mean of the account's good payments of 30 days.",
        "on": "shop",
        "by": ["user_id"],
        "of": "avg(amount)",
        "where": "type = 'payment' and status = 'ok'",
        "within": {"sliding": "30d", "every": "6h"},
    }
)


def unusual_rule(rule_id: str) -> Rule:
    """Return a rule that reads the published feature."""
    then = {"severity": "medium", "outcome": "review", "score": 40, "message": "{amount} is unusual for {user_id}"}
    where = "type = 'payment' and user_id is not null and amount > 1.5 * usual_amount"
    entries = {"group_by": ["user_id"], "features": ["usual_amount"], "where": where, "then": then, "tests": []}
    return payment_rule(rule_id, **entries)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pages(shop: ConsoleShop) -> dict[str, str]:
    """Give every page something to show; return the pages by name."""
    shop.publish_others(feature_change(USUAL), policy_change(POLICY))
    shop.publish(payment_rule("looked-at", 800, then=BLOCK), unusual_rule("unusual"))
    shop.publish(payment_rule("looked-at", 500, 2, mode="shadow"))
    shop.release("looked-at-together", payment_rule("looked-at-2", 900), payment_rule("looked-at-3", 950))
    for amount in (100, 600, 900, 1200):
        shop.pay("u42", amount)
    shop.pay("u42", "none")
    decisions = f"/api/v1{shop.home}/decisions?rule=looked-at&outcome=block"
    shop.wait_for(lambda: shop.client.get(decisions).json["decisions"], "a decision")
    decision = shop.client.get(decisions).json["decisions"][0]["decision_id"]
    letters = f"/api/v1{shop.home}/dead-letters"
    shop.wait_for(lambda: shop.alerts("looked-at"), "an alert")
    shop.wait_for(lambda: shop.client.get(letters).json["dead_letters"], "a dead letter")
    letter = shop.client.get(letters).json["dead_letters"][0]["at"]
    alert = shop.alerts("looked-at")[0]["alert_id"]
    tabs = ("now", "yaml", "tests", "history", "trial", "backtest", "why")
    return {
        "overview": "/",
        "app": shop.home,
        "rules": f"{shop.home}/rules",
        "new-rule": f"{shop.home}/new-rule",
        **{f"rule-{tab}": f"{shop.home}/rules/looked-at?tab={tab}" for tab in tabs},
        "rule-why-answer": f"{shop.home}/rules/looked-at?tab=why&k.user_id=u42",
        "alerts": f"{shop.home}/alerts",
        "alert": f"{shop.home}/alerts/{alert}",
        "decisions": f"{shop.home}/decisions",
        "decision": f"{shop.home}/decisions/{decision}",
        "decision-policies": f"{shop.home}/decision-policies",
        "decision-policy": f"{shop.home}/decision-policies/payments",
        "features": f"{shop.home}/features",
        "feature": f"{shop.home}/features/usual_amount?k.user_id=u42",
        "rule-features": f"{shop.home}/rules/unusual",
        "keys": f"{shop.home}/keys?column=user_id&value=u42",
        "dead-letters": f"{shop.home}/dead-letters",
        "dead-letter": f"{shop.home}/dead-letters/{letter}",
        "releases": f"{shop.home}/releases",
        "release": f"{shop.home}/releases/looked-at-together",
        "new-release": f"{shop.home}/new-release",
        "release-review": f"{shop.home}/new-release?rule=looked-at@2",
        "lists": f"{shop.home}/lists",
        "streams": f"{shop.home}/streams",
        "stream": f"{shop.home}/streams/shop",
        "health": f"{shop.home}/health",
        "components": "/components",
    }


def test_no_page_breaks_wcag_or_scrolls_sideways(shop: ConsoleShop, browser: Browser, pages: dict[str, str]) -> None:
    """Pages share the components, which are shown in the third look too: dark on a desk. All rules are for the first
    look, those that depend on theme and size for all."""
    broken: dict[str, object] = {}
    with visit(browser, shop.server) as visitor:
        for name, path in pages.items():
            visitor.open(path)
            if name in ("new-rule", "rule-yaml"):
                visitor.page.locator(".workbench.drawn .verdict.good").wait_for()
            found: list[str] = []
            for words, size, theme in LOOKS:
                if words != "dark" or name == "components":
                    visitor.look(size, theme)
                    visitor.picture(f"page-{name}-{words}")
                    rules = () if words == "light" else LOOK_RULES
                    found += [f"{words}: {one}" for one in visitor.violations(rules)]
                    if visitor.is_too_wide():
                        found.append(f"{words}: it scrolls sideways")
            visitor.look(DESKTOP, "light")
            if found:
                broken[name] = found
    assert broken == {}
