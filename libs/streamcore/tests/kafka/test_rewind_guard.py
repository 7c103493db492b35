"""An app does not continue by accident from a savepoint after which output was written."""

from __future__ import annotations

import pytest

from streamcore.checkpoint.origin import RestoreOrigin
from streamcore.errors import ConfigError
from streamcore.kafka.rewind_guard import check_not_behind_output


@pytest.mark.parametrize(
    ("epoch", "written", "rejected"),
    [
        (2, {}, False),
        (2, {1: 7}, False),
        (2, {1: 3}, False),
        (2, {1: 8}, True),
        (3, {1: 7}, False),
        (3, {1: 7, 2: 0}, True),
        (40, {1: 7, 39: 0}, True),
    ],
)
def test_output_of_an_earlier_epoch_after_the_savepoint_stops_the_first_start(
    epoch: int, written: dict[int, int], rejected: bool
) -> None:
    origin = RestoreOrigin("one", "", epoch=1, batch=7)
    if rejected:
        with pytest.raises(ConfigError, match="savepoint one is of batch 7 of epoch 1, and batch"):
            check_not_behind_output(origin, epoch, written.get)
        check_not_behind_output(RestoreOrigin("one", "", 1, 7, rewinds=True), epoch, written.get)
    else:
        check_not_behind_output(origin, epoch, written.get)
