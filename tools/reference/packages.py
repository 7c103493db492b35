"""Imports the modules of the product, for pages whose entries may be declared in any of them."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType

import headgate
import headgate_etl
import headgate_operator
import headgate_rules
import headgate_search
import headgate_sessions
import rulecore
import streamcore

PRODUCT = (
    *(streamcore, rulecore, headgate),
    *(headgate_etl, headgate_operator, headgate_rules, headgate_search, headgate_sessions),
)


def modules(packages: Iterable[ModuleType] = PRODUCT) -> Iterator[ModuleType]:
    """Import and yield all modules of some packages."""
    for package in packages:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield import_module(module.name)
