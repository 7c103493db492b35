"""Programs of users: what a reference names, how settings reach them, and what is wrong with one that cannot run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamcore.errors import ConfigError
from streamcore.service.program.definition import load_topology, program_service
from streamcore.service.program.reference import load_program
from streamcore.service.program.settings import ProgramSettings

_ORDERS = """
from typing import Annotated
from pydantic import Field
import polars as pl
import streamcore as sc

ORDERS = sc.StreamSchema.parse({
    "name": "orders", "event_time": "at", "keys": [["shop"]],
    "fields": {"at": "timestamp not null", "shop": "string not null", "amount": "double not null"},
})

def build(name, limit):
    return sc.Topology(name, sc.source(ORDERS).filter(pl.col("amount") > limit).sink("large", key="shop"))
"""
_PROGRAMS = {
    "value": "topology = build('revenue', 1.0)",
    "function": "def topology(): return build('made', 1.0)",
    "settings": """
class Settings(sc.ProgramSettings):
    app: str = "limited"
    limit: Annotated[float, Field(gt=0, description="Least amount.")]

def topology(settings: Settings): return build(settings.app, settings.limit)""",
    "other": "def topology(limit: float): return build('x', limit)",
    "wrong": "topology = 3",
    "fails": "topology = build('x', unknown)",
    "lazy": "def topology(): return 3",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the programs, and a module path that is as before after the test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    for name, text in _PROGRAMS.items():
        (tmp_path / f"case_{name}.py").write_text(f"{_ORDERS}\n{text}\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("case_")]:
        del sys.modules[name]


def settings_of(reference: str, **entries: object) -> ProgramSettings:
    document = {"kafka": {"bootstrap": "nowhere:1"}, "checkpoint": "/tmp/none", **entries}
    return program_service(reference).check_settings(document, "test")


def test_a_topology_and_a_function_that_returns_one_name_the_app(folder: Path) -> None:
    assert settings_of(f"{folder}/case_value.py").app == "revenue"
    assert settings_of(f"{folder}/case_function.py:topology").app == "made"
    assert settings_of(f"{folder}/case_value.py:topology", app="other").app == "other"


def test_a_module_is_found_in_the_working_directory_and_workers_get_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert load_program("case_value:topology").app_name == "revenue"
    assert str(folder) in os.environ["PYTHONPATH"].split(os.pathsep)


def test_a_program_with_settings_of_its_own_gets_them_and_a_wrong_one_is_named(folder: Path) -> None:
    reference = f"{folder}/case_settings.py:topology"
    settings = settings_of(reference, limit=5)
    assert (settings.app, settings.model_dump()["limit"]) == ("limited", 5.0)
    assert load_topology(reference, settings).name == "limited"
    with pytest.raises(ConfigError, match="limit: Input should be greater than 0"):
        settings_of(reference, limit=0)


def test_streams_and_lanes_are_bound_to_the_topics_of_the_settings(folder: Path) -> None:
    reference = f"{folder}/case_value.py:topology"
    streams = {"orders": {"topic": "shop.orders", "reject_extra_fields": True}}
    settings = settings_of(reference, app="shop", streams=streams)
    app = program_service(reference).build_app(settings)
    assert (app.name, app.topics, app.control_topic) == ("shop", ("shop.orders",), "shop.control")
    assert app.lanes == {"large": "shop.large", "deadletters": "shop.deadletters"}
    assert app.sources[0].reject_extra_fields
    unknown = settings_of(reference, streams={"order": {"topic": "x"}})
    with pytest.raises(ConfigError, match="has no stream 'order'; it has orders"):
        program_service(reference).build_app(unknown)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("case_value.py:nothing", "has no 'nothing'; it has the topologies topology"),
        ("case_wrong.py:topology", "topology is a int, not a Topology or a function"),
        ("case_other.py:topology", "annotated with a subclass of ProgramSettings"),
        ("case_fails.py:topology", r"case_fails.py, line \d+: NameError: name 'unknown' is not defined"),
        ("case_missing.py:topology", "there is no file"),
    ],
)
def test_a_program_that_cannot_be_loaded_is_rejected_with_what_to_do(
    folder: Path, reference: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_program(f"{folder}/{reference}")


def test_other_mistakes_in_a_reference(folder: Path) -> None:
    with pytest.raises(ConfigError, match="write module:topology"):
        load_program(":topology")
    with pytest.raises(ConfigError, match="there is no module nowhere"):
        load_program("nowhere.at_all:topology")
    with pytest.raises(ConfigError, match="returned a int, not a Topology"):
        load_program(f"{folder}/case_lazy.py")
    (folder / "types.py").write_text("topology = 1")
    with pytest.raises(ConfigError, match="another module has the name types"):
        load_program(f"{folder}/types.py:topology")
