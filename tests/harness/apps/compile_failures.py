"""Replaces the compiler of expressions, to test errors of compiled columns."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from rulecore.groups import subgroups as lanes
from rulecore.groups.windows import group as windowed
from rulecore.language import Expr
from rulecore.lists import fill_columns as columns
from rulecore.matching import encoded_batch as batch


def compile_with(monkeypatch: pytest.MonkeyPatch, form: Callable[[Expr], pl.Expr]) -> None:
    """Compile with ``form`` instead of ``to_polars`` within the context."""
    for module in (batch, lanes, windowed, columns):
        monkeypatch.setattr(module, "to_polars", form)
