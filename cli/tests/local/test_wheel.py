"""The wheel contains files that are not Python."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_file_of_a_package_is_in_the_wheel() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    patterns = build["package-data"]["*"]
    places = [ROOT / where for where in build["packages"]["find"]["where"]]
    folders = [top for place in places for top in place.iterdir() if _is_package(top)]
    packages = [folder for top in folders for folder in (top, *top.rglob("*")) if _is_package(folder)]
    assert len(packages) > 20
    taken = {file for package in packages for pattern in patterns for file in package.glob(pattern)}
    others = {
        file
        for top in folders
        for file in top.rglob("*")
        if file.is_file() and file.suffix not in (".py", ".pyc") and "__pycache__" not in file.parts
    }
    assert any(file.suffix == ".lock" for file in others)
    assert {file.name for file in others - taken} == {"java.in"}, "what java.lock was made from"


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").exists()
