"""The control record that puts a version of a rule into quarantine on all shards.

The app writes it to its own control topic when the version fails, or exceeds a budget, on one shard. Its key is
``quarantine/<id>@<version>``; its value is JSON with the ``reason``. A record without a value changes nothing: a new
version ends a quarantine.
"""

from __future__ import annotations

import orjson

from rulecore.documents.control_keys import QUARANTINE_KEY
from rulecore.documents.rule import Rule
from rulecore.documents.slots import version_key
from rulecore.errors import RuleSetError
from streamcore.wire.lanes import CONTROL, Record


def quarantine_record(rule: Rule, reason: str) -> Record:
    """Return the record for the lane ``CONTROL``."""
    return Record(CONTROL, f"{QUARANTINE_KEY}{version_key(rule)}".encode(), orjson.dumps({"reason": reason}))


def decode_quarantine(key: str, value: bytes | None) -> tuple[str, int, str | None]:
    """Return rule id, version and reason of a record; None as the reason of a record without a value.

    Raise ``RuleSetError`` if the record has another form.
    """
    rule_id, at, version = key.removeprefix(QUARANTINE_KEY).rpartition("@")
    if not at or not version.isdigit():
        raise RuleSetError(f"the key {key!r} must be {QUARANTINE_KEY}<rule>@<version>")
    if value is None:
        return rule_id, int(version), None
    try:
        reason = orjson.loads(value)["reason"]
    except (ValueError, KeyError, TypeError) as error:
        raise RuleSetError(f"{key}: the value must be JSON with the reason") from error
    return rule_id, int(version), str(reason)
