"""The value of a published feature for a key, as ``headgate features get`` gives it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headgate.errors import InputError
from headgate.explain.feature_value import FeatureQuery, read_feature, reading_json
from headgate.records.formats import read_formats
from headgate.time_arguments import parse_time
from headgate.web.changes.explain import KnownApp
from headgate.web.problems import ProblemCode, ProblemError, not_found
from headgate.web.state.feature_values import FeatureReadingValue
from rulecore.errors import RuleError


def find_value(known: KnownApp, name: str, key: Sequence[str], at: str | None, scan: int) -> FeatureReadingValue:
    """Return the value for a key, at a time or now. ``scan``: the most records of a topic that it reads.
    ``ProblemError`` naming what is missing, if there is none."""
    if name not in known.history.rules.features.documents:
        raise not_found(f"app {known.app.name} has no published feature {name}")
    now_ms = int(time.time() * 1000)
    try:
        at_ms = None if at is None else parse_time(at, now_ms, "at")
        query = FeatureQuery(name, key, at_ms, (), scan, now_ms, read_formats(known.app.settings))
        found = read_feature(known.kafka, known.app.name, known.history, query)
    except (InputError, RuleError) as error:
        raise ProblemError(422, ProblemCode.CANNOT_ANSWER, str(error)) from None
    return FeatureReadingValue.model_validate(reading_json(found))
