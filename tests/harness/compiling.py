"""Expressions that do not compile to columns as they should, wherever rules compile them."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from rulecore import batch, lanes, windowed
from rulecore.lang import Expr
from rulecore.lists import columns


def compile_with(monkeypatch: pytest.MonkeyPatch, form: Callable[[Expr], pl.Expr]) -> None:
    """``form`` instead of ``to_polars``."""
    for module in (batch, lanes, windowed, columns):
        monkeypatch.setattr(module, "to_polars", form)
