"""The columns, steps and metrics of the shop's sessions, as entries of the settings of a sessions app."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final  # a settings document is made of anything

#: Type of an event that did not fail; a failed one is counted, but is no step and brings no money.
_DERIVED: Final = {
    "done": "case when status is null or status not in ('declined', 'failed') then type end",
    "money": "case when done = 'payment' then amount when done = 'refund' then -amount end",
    "money_currency": "case when money is not null then coalesce(currency, 'XXX') end",
}
_STEPS: Final = ("view", "cart_add", "checkout", "payment")


def shop_entries(page: str = "product_id") -> Mapping[str, Any]:
    """Return the entries. ``page``: the field with the page or product that was viewed."""
    return {
        "derive": _DERIVED,
        "columns": {
            "pages": f"count(distinct {page})",
            "first_page": f"first({page})",
            "last_page": f"last({page})",
            "converted": "count(done = 'payment') > 0",
            "revenue": "coalesce(sum(money), 0)",
            "currency": "first(money_currency)",
            "bounce": "events <= 1 and count(done = 'payment') = 0",
        },
        "funnel": [{"name": step, "when": f"done = '{step}'"} for step in _STEPS],
    }


def shop_metrics(page: str = "product_id") -> Mapping[str, Any]:
    """Return the entries of ``dashboard_metrics`` that read the shop's events."""
    return {"page": page, "amount": "money", "currency": "currency"}
