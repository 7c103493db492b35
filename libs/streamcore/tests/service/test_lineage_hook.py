"""Lineage is off by default; on, it names the datasets of a service by the rules of OpenLineage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate_etl.app import build_app
from streamcore.errors import ConfigError
from streamcore.service.lineage_hook import lineage_for, lineage_job
from tests.harness.apps import small_etl

ROUTES = ["lake", "files", "table", "iceberg", "hook"]
SINKS = {
    "routes": [{"name": "clean"}]
    + [
        {"name": name, "to": sink}
        for name, sink in zip(ROUTES, ["delta", "parquet", "postgres", "iceberg", "webhook"], strict=True)
    ],
    "delta": {"tables": {"lake": {"uri": "s3://lake/shop/rows"}}},
    "parquet": {"tables": {"files": {"uri": "/data/rows"}}},
    "postgres": {"host": "db", "database": "shop", "user": "u", "tables": {"table": {"table": "public.rows"}}},
    "iceberg": {
        "catalog": {"options": {"type": "rest", "uri": "http://catalog:8181"}},
        "tables": {"iceberg": {"table": "shop.rows"}},
    },
    "webhook": {"endpoints": {"hook": {"url": "https://hooks.example:8443/rows?key=secret"}}},
}


def test_each_lane_ends_in_the_dataset_that_others_know_by_this_name(tmp_path: Path) -> None:
    entries = {"kafka": {"bootstrap": "b1:9092,b2:9092"}, "lineage": {"url": "http://marquez:5000"}, **SINKS}
    settings = small_etl.load(tmp_path, None, **entries)
    job = lineage_job(settings, build_app(settings))
    assert (job.namespace, job.name) == ("headgate", settings.app)
    names = {lane: (one.namespace, one.name) for lane, one in job.outputs.items()}
    assert {lane: names[lane] for lane in ("clean", *ROUTES)} == {
        "clean": ("kafka://b1:9092", f"{settings.app}.clean"),
        "lake": ("s3://lake", "shop/rows"),
        "files": ("file", "/data/rows"),
        "table": ("postgres://db:5432", "shop.public.rows"),
        "iceberg": ("http://catalog:8181", "shop.rows"),
        "hook": ("https://hooks.example:8443", "/rows"),
    }
    assert job.inputs.keys() == {"orders", settings.control_topic}
    assert ("id", "string") in job.inputs["orders"].fields


@pytest.mark.slow
def test_it_is_off_by_default_and_loads_no_http_client(tmp_path: Path) -> None:
    settings = small_etl.load(tmp_path)
    assert settings.lineage is None
    with lineage_for(settings) as lineage:
        assert lineage is None
    code = "import sys; import streamcore.service.main; print('streamcore.lineage.reporter' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_wrong_entry_of_lineage_is_a_mistake_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lineage.*write http://host:port"):
        small_etl.load(tmp_path, None, lineage={"url": "marquez:5000"})
