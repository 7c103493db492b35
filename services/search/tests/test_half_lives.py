"""Counts with half-lives: scores order documents as decaying sums do, with any cuts, restarts and shards."""

from __future__ import annotations

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headgate_search.app import build_app
from headgate_search.settings import SearchSettings
from streamcore.engine.in_process import InProcessApp, RawRecord
from tests.harness.apps import search_app as search

HOUR_MS = 3_600_000
NOW_MS = 1_790_000_000_000 // HOUR_MS * HOUR_MS
HALF_LIFE_MS = HOUR_MS


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> SearchSettings:
    file = tmp_path_factory.mktemp("songs") / "songs.yaml"
    fields = {"at": "timestamp not null", "id": "string", "stars": "long"}
    file.write_text(yaml.safe_dump({"name": "songs", "event_time": "at", "keys": [["id"]], "fields": fields}))
    stream = {"schema_file": str(file), "topic": "songs"}
    return search.settings(
        documents=[{**stream, "fields": {"last": "at"}}],
        counters=[{**stream, "counts": {"likes": {"add": "stars"}}}],
        half_lives=[{"name": "trend", "half_life_ms": HALF_LIFE_MS}],
        spans=[{"name": "1d", "span_ms": 24 * HOUR_MS, "step_ms": HOUR_MS}],
        publish_changes=True,
        refresh_ms=0,
    )


plays = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 600), st.integers(1, 9)), min_size=1, max_size=20)


def scores(
    settings: SearchSettings, happened: list[tuple[str, int, int]], cuts: list[int], shards: int
) -> dict[str, float]:
    """Return the score of each song after these events; the app continues in another process in each cut."""
    app = InProcessApp(build_app(settings.model_copy(update={"shards": shards})))
    found: dict[str, float] = {}
    offset = 0
    for size in [*cuts, len(happened) + 1]:
        part, happened = happened[:size], happened[size:]
        records = [
            RawRecord(0, 0, offset + n, orjson.dumps({"at": NOW_MS + minute * 60_000, "id": i, "stars": stars}))
            for n, (i, minute, stars) in enumerate(part)
        ]
        offset += len(part)
        for record in app.cut(records, NOW_MS + 24 * HOUR_MS):
            if record.lane == "changes":
                row = orjson.loads(record.value or b"")
                found[row["id"]] = row["likes_trend"]
        app = InProcessApp(app.app, app.blobs, partitions=app.partitions, next_offsets=app.next_offsets)
    return found


@hypothesis_settings(max_examples=25)
@given(plays, st.lists(st.integers(1, 6), max_size=4), st.sampled_from([1, 3]))
@pytest.mark.slow
def test_a_score_is_the_logarithm_of_the_decayed_sum(
    settings: SearchSettings, happened: list[tuple[str, int, int]], cuts: list[int], shards: int
) -> None:
    found = scores(settings, happened, cuts, shards)
    assert found == scores(settings, happened, [], 1)
    end_ms = NOW_MS + 600 * 60_000
    for song, score in found.items():
        now = 2 ** (score - end_ms / HALF_LIFE_MS)
        ages = [(end_ms - NOW_MS - minute * 60_000, stars) for i, minute, stars in happened if i == song]
        exact = sum(stars * 2 ** (-age / HALF_LIFE_MS) for age, stars in ages)
        assert exact * 2 ** (-1 / 8) * 0.999 < now < exact * 1.001, "an age is that of the beginning of its eighth"


@pytest.mark.slow
def test_new_rows_raise_the_score_and_old_ones_are_forgotten_after_sixteen_half_lives(settings: SearchSettings) -> None:
    few, many = (scores(settings, [("a", 0, 1)] * count, [], 1)["a"] for count in (1, 8))
    assert many - few == pytest.approx(3)
    later = scores(settings, [("a", 60, 1)], [], 1)["a"]
    assert later - few == pytest.approx(1)
    both = scores(settings, [("a", 0, 1), ("b", 60 * 18, 1)], [1], 1)
    assert both["a"] is None
