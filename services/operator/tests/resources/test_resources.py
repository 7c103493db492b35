"""Durations, releases and versions in resources, and their round trip through JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from headgate_operator.resources import Status, StreamAppSpec, release_for
from headgate_operator.resources.base import (
    format_instant,
    parse_duration_ms,
    parse_instant_ms,
)
from headgate_operator.resources.release import image_version
from headgate_operator.runtime.parse import write_status
from streamcore.durations import render_duration
from tests.harness.operator.schedule import Schedule

_SPEC = {"service": "rules", "image": "headgate:1.4.0", "config": {"shards": 4}, "checkpoint": {"root": "/checkpoints"}}


def _spec(**changed: object) -> StreamAppSpec:
    return StreamAppSpec.model_validate({**_SPEC, **changed})


@given(st.integers(0, 10**9))
def test_a_duration_reads_back_as_it_was_written(duration_ms: int) -> None:
    assert parse_duration_ms(render_duration(duration_ms)) == duration_ms


@given(st.integers(0, 4 * 10**12))
def test_an_instant_reads_back_as_it_was_written(instant_ms: int) -> None:
    assert parse_instant_ms(format_instant(instant_ms)) == instant_ms


@pytest.mark.parametrize("text", ["1 h", "5", "-1s", "1w", "s"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValidationError):
        _spec(deletionDeadline=text)


def test_an_unknown_name_is_rejected() -> None:
    with pytest.raises(ValidationError, match="exectors"):
        _spec(exectors=2)


def test_a_change_of_policy_keeps_the_revision_and_a_change_of_pods_does_not() -> None:
    one = release_for(_spec(), 1)
    assert (
        release_for(_spec(savepoints={"every": "6h"}, deletionPolicy="purge", state="suspended"), 2).revision
        == one.revision
    )
    assert release_for(_spec(executors=2), 2).revision != one.revision
    assert release_for(_spec(upgrade={"nonce": "again"}), 2).revision != one.revision


def test_a_change_of_settings_changes_the_revision_and_keeps_the_shape() -> None:
    one, other = release_for(_spec(), 1), release_for(_spec(config={"shards": 8}), 2)
    assert one.revision != other.revision
    assert one.shape == other.shape


def test_a_program_names_a_topology_and_no_other_service_does() -> None:
    assert _spec(service="program", module="shop.revenue:topology").process[1] == "shop.revenue:topology"
    for wrong in ({"service": "program"}, {"module": "revenue:topology"}):
        with pytest.raises(ValidationError, match="a program has a module"):
            _spec(**wrong)
    with pytest.raises(ValidationError, match="module"):
        _spec(service="program", module="revenue.py")
    one, other = (release_for(_spec(service="program", module=f"{name}:topology"), 1) for name in ("a", "b"))
    assert one.shape != other.shape, "another topology needs another process"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("headgate:1.4.0", "1.4.0"),
        ("registry:5000/team/headgate:1.4.0", "1.4.0"),
        ("registry:5000/headgate", "latest"),
        ("headgate@sha256:0123456789abcdef", "0123456789ab"),
    ],
)
def test_the_version_is_the_tag_or_the_digest_of_the_image(image: str, version: str) -> None:
    assert image_version(image) == version


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("seed", range(12))
def test_a_status_reads_back_from_json_as_it_was(seed: int) -> None:
    """The statuses are those of simulated apps after many operations."""
    schedule = Schedule(seed)
    schedule.run()
    status = schedule.cluster.app.status
    assert TypeAdapter(Status).validate_python(write_status(status)) == status


@pytest.mark.parametrize("name", ["orders.yaml", "streams/orders.yaml", "a_b-c.1"])
def test_a_file_name_has_one_folder_before_it_at_most(name: str) -> None:
    assert _spec(files={name: "x"}).files == {name: "x"}


@pytest.mark.parametrize("name", ["", "a/b/c", "/a", "a/", "..", "a..b", ".a", "A.yaml", "a" * 121])
def test_a_file_name_that_leads_out_of_the_folder_is_rejected(name: str) -> None:
    with pytest.raises(ValidationError, match="file's name"):
        _spec(files={name: "x"})


def test_the_size_of_files_is_counted_in_bytes_and_not_in_characters() -> None:
    _spec(files={"a": "a" * 192 * 1024})
    with pytest.raises(ValidationError, match="196608 bytes together"):
        _spec(files={"a": "é" * 97 * 1024})
