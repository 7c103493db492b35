"""Roles, and the role that each route needs. A route without an entry is refused, and a test names it."""

from __future__ import annotations

import enum
from typing import Final


class Role(enum.StrEnum):
    """Roles of a person. ``viewer`` < ``author`` < ``publisher`` < ``approver``; ``operator`` beside them does what
    changes no rule (replays, savepoints); ``admin`` may all."""

    VIEWER = "viewer"
    AUTHOR = "author"
    PUBLISHER = "publisher"
    APPROVER = "approver"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, needed: Role) -> bool:
        """Return whether this role has the rights of the other."""
        return needed in _INCLUDED[self]


_LADDER: Final = (Role.VIEWER, Role.AUTHOR, Role.PUBLISHER, Role.APPROVER)
_INCLUDED: Final = {
    **{role: frozenset(_LADDER[: number + 1]) for number, role in enumerate(_LADDER)},
    Role.OPERATOR: frozenset({Role.VIEWER, Role.OPERATOR}),
    Role.ADMIN: frozenset(Role),
}
_APP, _RULE = "/apps/{app}", "/apps/{app}/rules/{rule}"
_API = "/api/v1"

#: The role that each route needs, by method and path.
ROUTES: Final = {
    ("GET", "/"): Role.VIEWER,
    ("GET", "/components"): Role.VIEWER,
    ("GET", _APP): Role.VIEWER,
    ("GET", f"{_APP}/rules"): Role.VIEWER,
    ("GET", f"{_APP}/new-rule"): Role.AUTHOR,
    ("POST", f"{_APP}/new-rule"): Role.AUTHOR,
    ("GET", _RULE): Role.VIEWER,
    ("POST", f"{_RULE}/edit"): Role.AUTHOR,
    ("POST", f"{_APP}/review"): Role.AUTHOR,
    ("POST", f"{_APP}/publish"): Role.PUBLISHER,
    ("POST", f"{_RULE}/mode"): Role.PUBLISHER,
    ("POST", f"{_RULE}/rollback"): Role.PUBLISHER,
    ("GET", f"{_APP}/alerts"): Role.VIEWER,
    ("GET", f"{_APP}/alerts/{{alert}}"): Role.VIEWER,
    ("GET", f"{_APP}/decisions"): Role.VIEWER,
    ("GET", f"{_APP}/decisions/{{decision}}"): Role.VIEWER,
    ("GET", f"{_APP}/dead-letters"): Role.VIEWER,
    ("GET", f"{_APP}/dead-letters/{{partition}}/{{offset}}"): Role.VIEWER,
    ("POST", f"{_APP}/dead-letters/{{partition}}/{{offset}}/replay"): Role.OPERATOR,
    ("GET", f"{_APP}/releases"): Role.VIEWER,
    ("GET", f"{_APP}/new-release"): Role.AUTHOR,
    ("POST", f"{_APP}/releases"): Role.PUBLISHER,
    ("GET", f"{_APP}/releases/{{release}}"): Role.VIEWER,
    ("POST", f"{_APP}/releases/{{release}}/rollback"): Role.PUBLISHER,
    ("POST", f"{_APP}/backtests"): Role.AUTHOR,
    ("GET", f"{_APP}/backtests/{{job}}"): Role.VIEWER,
    ("POST", f"{_APP}/backtests/{{job}}/cancel"): Role.AUTHOR,
    ("GET", f"{_APP}/backtests/{{job}}/{{side}}/{{number}}"): Role.VIEWER,
    ("GET", f"{_APP}/keys"): Role.VIEWER,
    ("GET", f"{_APP}/decision-policies"): Role.VIEWER,
    ("GET", f"{_APP}/decision-policies/{{policy}}"): Role.VIEWER,
    ("GET", f"{_APP}/features"): Role.VIEWER,
    ("GET", f"{_APP}/features/{{feature}}"): Role.VIEWER,
    ("GET", f"{_APP}/lists"): Role.VIEWER,
    ("GET", f"{_APP}/lists/{{name}}"): Role.VIEWER,
    ("GET", f"{_APP}/streams"): Role.VIEWER,
    ("GET", f"{_APP}/streams/{{name}}"): Role.VIEWER,
    ("GET", f"{_APP}/health"): Role.VIEWER,
    ("GET", f"{_APP}/upgrades"): Role.VIEWER,
    ("GET", f"{_API}/openapi.json"): Role.VIEWER,
    ("GET", f"{_APP}/access"): Role.VIEWER,
    ("POST", f"{_APP}/access"): Role.APPROVER,
    ("GET", f"{_APP}/audit"): Role.VIEWER,
    ("GET", f"{_API}/session"): Role.VIEWER,
    ("POST", f"{_API}{_APP}/backtests"): Role.AUTHOR,
    ("GET", f"{_API}{_APP}/backtests"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/backtests/{{job}}"): Role.VIEWER,
    ("DELETE", f"{_API}{_APP}/backtests/{{job}}"): Role.AUTHOR,
    ("GET", f"{_API}{_APP}/entity"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/health"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/savepoints"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/upgrades"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/proposals"): Role.VIEWER,
    ("POST", f"{_API}{_APP}/proposals"): Role.AUTHOR,
    ("POST", f"{_API}{_APP}/proposals/{{proposal}}/decision"): Role.APPROVER,
    ("GET", f"{_API}{_APP}/governance"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/audit"): Role.VIEWER,
    ("GET", f"{_API}/apps"): Role.VIEWER,
    ("GET", f"{_API}{_APP}"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/rules"): Role.VIEWER,
    ("POST", f"{_API}{_APP}/rule-checks"): Role.AUTHOR,
    ("POST", f"{_API}{_APP}/completions"): Role.AUTHOR,
    ("POST", f"{_API}{_APP}/similar-events"): Role.AUTHOR,
    ("GET", f"{_API}{_RULE}"): Role.VIEWER,
    ("PUT", f"{_API}{_RULE}"): Role.PUBLISHER,
    ("POST", f"{_API}{_RULE}/mode"): Role.PUBLISHER,
    ("POST", f"{_API}{_RULE}/rollback"): Role.PUBLISHER,
    ("GET", f"{_API}{_RULE}/versions"): Role.VIEWER,
    ("GET", f"{_API}{_RULE}/versions/{{version}}"): Role.VIEWER,
    ("GET", f"{_API}{_RULE}/tests"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/history"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/releases"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/release-review"): Role.AUTHOR,
    ("POST", f"{_API}{_APP}/release-review"): Role.AUTHOR,
    ("POST", f"{_API}{_APP}/releases"): Role.PUBLISHER,
    ("GET", f"{_API}{_APP}/releases/{{release}}"): Role.VIEWER,
    ("POST", f"{_API}{_APP}/releases/{{release}}/rollback"): Role.PUBLISHER,
    ("GET", f"{_API}{_APP}/decision-policies"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/decision-policies/{{policy}}"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/decision-policies/{{policy}}/versions/{{version}}"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/features"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/features/{{feature}}"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/features/{{feature}}/value"): Role.VIEWER,
    ("PUT", f"{_API}{_APP}/features/{{feature}}"): Role.PUBLISHER,
    ("DELETE", f"{_API}{_APP}/features/{{feature}}"): Role.PUBLISHER,
    ("PUT", f"{_API}{_APP}/decision-policies/{{policy}}"): Role.PUBLISHER,
    ("DELETE", f"{_API}{_APP}/decision-policies/{{policy}}"): Role.PUBLISHER,
    ("GET", f"{_API}{_RULE}/features"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/lists"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/lists/{{name}}"): Role.VIEWER,
    ("PUT", f"{_API}{_APP}/lists/{{name}}"): Role.PUBLISHER,
    ("GET", f"{_API}{_APP}/streams"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/streams/{{name}}"): Role.VIEWER,
    ("PUT", f"{_API}{_APP}/streams/{{name}}"): Role.PUBLISHER,
    ("GET", f"{_API}{_APP}/alerts"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/alerts/live"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/alerts/{{alert}}"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/decisions"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/decisions/live"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/decisions/{{decision}}"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/decisions/{{decision}}/explanation"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/explanation"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/dead-letters"): Role.VIEWER,
    ("GET", f"{_API}{_APP}/dead-letters/{{partition}}/{{offset}}"): Role.VIEWER,
    ("POST", f"{_API}{_APP}/dead-letters/{{partition}}/{{offset}}/replay"): Role.OPERATOR,
}
