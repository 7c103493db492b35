"""The entries of lists for a trial: of files, or of a test."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any  # a settings document is made of anything

import yaml

from headgate.errors import InputError
from rulecore.lists.records import ListHead, list_records
from streamcore.schema import Type
from streamcore.yaml_loader import SAFE_LOADER

if TYPE_CHECKING:
    from rulecore.documents.yaml_reader import Json


def read_lists(files: Mapping[str, Path], document: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    """Return the control records of the lists in files. ``document``: the settings, which declare their types.

    ``InputError`` for a list that the settings do not have, or a file that has no entries.
    """
    records = list[tuple[str, bytes]]()
    for name, file in files.items():
        entries, of_networks = _read(file)
        records += to_records(name, entries, document, f"--list {name}", of_networks=of_networks)
    return records


def _read(file: Path) -> tuple[object, bool]:
    """Return the entries in a file, and whether it says that they are networks."""
    try:
        if file.suffix == ".csv":
            rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))
            return [row if len(row) > 1 else row[0] for row in rows[1:] if row], False
        found = yaml.load(file.read_text(encoding="utf-8"), Loader=SAFE_LOADER)  # noqa: S506 - a safe one
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{file}: cannot be read: {' '.join(str(error).split())}") from None
    if isinstance(found, dict) and "list" in found:
        of_networks = found.get("networks") is True
        if "file" in found:
            return _read(file.parent / str(found["file"]))[0], of_networks
        return found.get("entries"), of_networks
    return found, False


def to_records(
    name: str, entries: object, document: Mapping[str, Any], where: str, *, of_networks: bool = False
) -> list[tuple[str, bytes]]:
    """Return the control records of a list: of a mapping of keys to values, of keys, or of pairs."""
    declared = (document.get("lists") or {}).get(name)
    if not isinstance(declared, Mapping):
        known = ", ".join(document.get("lists") or {}) or "none"
        raise InputError(f"{where}: the settings have no list of this name; lists there: {known}")
    value = None if declared.get("value") is None else Type.parse(str(declared["value"]))
    of, networks = Type.parse(str(declared["of"])), of_networks or bool(declared.get("networks"))
    head = ListHead(list=name, version=1, owner="try", of=of, value=value, networks=networks)
    if isinstance(entries, Mapping):
        rows: list[Json] = [[_entry(key), _entry(each)] for key, each in entries.items()]
    elif isinstance(entries, list):
        rows = [[_entry(one) for one in each] if isinstance(each, list) else [_entry(each)] for each in entries]
    else:
        raise InputError(f"{where}: write a mapping of keys to values, or a list of keys")
    return list_records(head, rows)


def _entry(value: object) -> Json:
    """Return a value of an entry; numbers with a point are text, so that they stay exact."""
    return value if isinstance(value, int | str | None) else str(value)
