"""The public names of a package, imported when they are first used (PEP 562): importing the package stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Mapping[str, str], Callable[[str], object], Callable[[], list[str]]]:
    """Return the module of each public name, and the functions ``__getattr__`` and ``__dir__`` of the package.

    ``modules``: the public names that each module defines, separated by spaces.
    """
    module_by_name = {name: module for module, names in modules.items() for name in names.split()}
    namespace = vars(sys.modules[package])

    def get_attribute(name: str) -> object:
        """Import the module that defines a public name, and keep the name."""
        module = module_by_name.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        value = namespace[name] = getattr(import_module(module), name)
        return value

    def list_names() -> list[str]:
        return sorted({*namespace, *module_by_name})

    return module_by_name, get_attribute, list_names
