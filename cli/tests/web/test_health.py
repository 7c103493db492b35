"""Who holds the watermark back, and where the time of a cut goes, from the metrics that a process serves."""

from __future__ import annotations

from headgate.web.state.health import parse_samples, partition_health, phase_values

METRICS = """\
# HELP headgate_cut_duration_seconds Time
# TYPE headgate_cut_duration_seconds histogram
headgate_cut_duration_seconds_bucket{le="0.1",phase="run"} 4.0
headgate_cut_duration_seconds_count{phase="run"} 4.0
headgate_cut_duration_seconds_sum{phase="run"} 2.0
headgate_cut_duration_seconds_count{phase="commit"} 4.0
headgate_cut_duration_seconds_sum{phase="commit"} 0.4
headgate_cut_duration_seconds_count{phase="idle"} 0.0
headgate_cut_duration_seconds_sum{phase="idle"} 0.0
headgate_partition_watermark_delay_seconds{partition="0",topic="shop"} 3.5
headgate_partition_watermark_delay_seconds{partition="1",topic="shop"} 93.0
headgate_epoch 1.0
"""


def test_phases_are_means_the_longest_first() -> None:
    found = phase_values(parse_samples(METRICS))
    assert [(one.name, one.seconds, one.cuts) for one in found] == [("run", 0.5, 4), ("commit", 0.1, 4)]


def test_the_partition_that_holds_the_watermark_back_is_first_and_marked() -> None:
    positions = {("shop", 0): 10, ("shop", 1): 20, ("shop.control", 0): 5}
    ends = {("shop", 0): 110, ("shop", 1): 21, ("shop.control", 0): 5}
    found = partition_health(positions, ends, parse_samples(METRICS))
    assert [(one.topic, one.partition, one.lag, one.delay_s, one.holds_back) for one in found] == [
        ("shop", 1, 1, 93.0, True),
        ("shop", 0, 100, 3.5, False),
        ("shop.control", 0, 0, None, False),
    ]
    assert not any(one.holds_back for one in partition_health(positions, ends, []))
