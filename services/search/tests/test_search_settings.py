"""Settings of the search app, its lanes, and the index template beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headgate_search.app import build_app, build_topology
from headgate_search.service import SERVICE
from headgate_search.settings import DOCUMENTS
from headgate_search.topics import CHANGES
from streamcore.errors import ConfigError
from streamcore.wire.lanes import DEAD_LETTERS, LATE, STATUS
from tests.harness.apps import search_app as search


def document(**more: object) -> dict[str, object]:
    written: dict[str, object] = json.loads(search.settings().model_dump_json(exclude_defaults=True))
    return written | more


def opensearch(indexes: dict[str, object]) -> dict[str, object]:
    return {"hosts": ["http://nowhere:9200"], "indexes": indexes}


def write(folder: Path, **more: object) -> Path:
    path = folder / "search.yaml"
    path.write_text(yaml.safe_dump(document(**more)))
    return path


def test_a_file_of_settings_gives_the_app_that_it_describes(tmp_path: Path) -> None:
    settings = SERVICE.load_settings(write(tmp_path, app="find", shards=2, refresh_ms=5))
    app = build_app(settings)
    assert (app.name, app.shards, app.topics) == ("find", 2, ("products", "shop"))
    assert app.tables == {DOCUMENTS}
    assert dict(app.lanes) == {LATE: "find.late", DEAD_LETTERS: "find.deadletters", STATUS: "find.status"}
    assert app.watermark_for(1) == settings.watermark


def test_documents_are_also_published_to_a_topic_if_the_settings_say_so(tmp_path: Path) -> None:
    app = build_app(SERVICE.load_settings(write(tmp_path, publish_changes=True)))
    assert app.lanes[CHANGES] == "search.changes"


def test_undeclared_fields_are_rejected_only_on_streams_whose_settings_say_so(tmp_path: Path) -> None:
    streams = search.shop_streams("products", "shop")
    strict = search.shop_streams("p", "shop", reject_extra_fields=True)["documents"]
    app = build_app(SERVICE.load_settings(write(tmp_path, **{**streams, "documents": strict})))
    assert [source.reject_extra_fields for source in app.sources] == [True, False]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"spans": [{"name": "1h", "span_ms": 10, "step_ms": 3}]}, "not a whole number of step_ms 3"),
        ({"spans": [{"name": "1h", "span_ms": 10, "step_ms": 5}] * 2}, "a name appears twice"),
        ({"spans": []}, "at least 1 item"),
        ({"refresh_ms": -1}, "refresh_ms"),
        ({"index": "products"}, "index"),
        ({"opensearch": opensearch({})}, "no lane has an index"),
        ({"opensearch": opensearch({"documents": {"alias": "p", "id": ["name"]}})}, "must have id"),
    ],
)
def test_invalid_settings_are_rejected_with_the_reason(tmp_path: Path, entry: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        SERVICE.load_settings(write(tmp_path, **entry))


def test_the_whole_app_is_one_keyed_stage_by_product() -> None:
    text = build_topology(search.settings()).text()
    assert text.count("keyed stage") == 1
    assert "keyed stage 1, by id" in text


@pytest.mark.slow
def test_modules_that_workers_preload_do_not_import_pandas() -> None:
    """Workers reject pandas, and would not start."""
    loading = "\n".join(f"import {name}" for name in search.settings().preload)
    completed = subprocess.run(
        [sys.executable, "-c", f"{REJECTING}{loading}"], capture_output=True, text=True, check=False, timeout=120
    )
    assert completed.returncode == 0, completed.stderr


REJECTING = """
import sys
class WithoutPandas:
    def find_spec(self, name, path, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, WithoutPandas())
"""
