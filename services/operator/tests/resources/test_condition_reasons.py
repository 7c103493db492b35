"""Every outcome of an upgrade has a reason of the condition that shows it."""

from __future__ import annotations

import pytest

from headgate_operator.resources.reasons import ConditionReason
from headgate_operator.resources.status import UpgradeOutcome


@pytest.mark.parametrize("outcome", UpgradeOutcome)
def test_every_outcome_has_a_reason(outcome: UpgradeOutcome) -> None:
    assert ConditionReason.of_upgrade(outcome).value == f"Upgrade{outcome.value}"
