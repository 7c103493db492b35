"""The page about the console names pages that exist, and shows all of its pictures."""

from __future__ import annotations

import re
from pathlib import Path

from headgate.web.access.roles import ROUTES
from headgate.web.pages.html import TABS
from tests.harness.servers.chromium import IN_DOCS

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs" / "console.md"
MOST_BYTES = 1_500_000
#: The address of each page of the table.
ADDRESSES = {
    "Overview": "/",
    "Rules": "/apps/{app}/rules",
    "Rule": "/apps/{app}/rules/{rule}",
    "Workbench": "/apps/{app}/new-rule",
    "Review": "/apps/{app}/review",
    "Back-test": "/apps/{app}/backtests/{job}",
    "Releases": "/apps/{app}/releases",
    "Release": "/apps/{app}/new-release",
    "Alerts": "/apps/{app}/alerts",
    "Alert": "/apps/{app}/alerts/{alert}",
    "Decisions": "/apps/{app}/decisions",
    "Decision": "/apps/{app}/decisions/{decision}",
    "Decision policies": "/apps/{app}/decision-policies",
    "Features": "/apps/{app}/features",
    "Feature": "/apps/{app}/features/{feature}",
    "Keys": "/apps/{app}/keys",
    "Dead letters": "/apps/{app}/dead-letters",
    "Lists": "/apps/{app}/lists",
    "Streams": "/apps/{app}/streams",
    "Health": "/apps/{app}/health",
    "Upgrades": "/apps/{app}/upgrades",
    "Access": "/apps/{app}/access",
    "Audit": "/apps/{app}/audit",
    "`/components`": "/components",
}


def test_every_page_of_the_table_exists() -> None:
    text = PAGE.read_text()
    paths = {path for _, path in ROUTES}
    table = text.partition("| page |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert len(cells) > 12
    for cell in cells:
        first = next((name for name in ADDRESSES if cell == name or cell.startswith(f"{name},")), None)
        assert first is not None, f"docs/console.md names {cell}"
        assert ADDRESSES[first] in paths, first
    for label in re.findall(r"\*([A-Z][a-z -]+)\*:", text.partition("| Rule |")[2].partition("\n")[0]):
        name = {"workbench": "yaml", "back-test": "backtest", "why not": "why"}.get(label.lower(), label.lower())
        assert name in TABS, label


def test_every_picture_is_shown_and_made_by_a_journey() -> None:
    folder = REPOSITORY / "docs" / "console"
    files = {one.name: one.stat().st_size for one in folder.iterdir()}
    shown = set(re.findall(r"\(console/([\w-]+\.webp)\)", PAGE.read_text()))
    assert shown == files.keys() == {f"{name}.webp" for name in IN_DOCS.values()}
    assert sum(files.values()) < MOST_BYTES
    journeys = "".join(one.read_text() for one in (REPOSITORY / "tests" / "console").glob("test_*.py"))
    assert all(f'"{name}"' in journeys or name.startswith("page-") for name in IN_DOCS)
