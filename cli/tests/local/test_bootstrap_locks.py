"""The locks of the environment: every package with a hash and one version, and no address of a registry."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = [*(ROOT / "requirements").glob("*.lock"), ROOT / "cli" / "headgate" / "local" / "locks" / "java.lock"]
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def pins(path: Path) -> set[tuple[str, str]]:
    return set(_PIN.findall(path.read_text()))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_pin_has_a_hash_and_no_line_names_a_host(lock: Path) -> None:
    text = lock.read_text()
    entries = re.split(r"\n(?=[A-Za-z0-9])", text)
    assert len(entries) == len(_PIN.findall(text))
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "//" not in text


@pytest.mark.parametrize("name", ["runtime.lock", "bootstrap.lock"])
def test_the_smaller_locks_agree_with_the_developers(name: str) -> None:
    extra = pins(ROOT / "requirements" / name) - pins(ROOT / "requirements" / "dev.lock")
    assert {package for package, _ in extra} <= {"uv"}


def test_the_bootstrap_needs_the_standard_library_only() -> None:
    tree = ast.parse((ROOT / "tools" / "bootstrap.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= set(sys.stdlib_module_names)
