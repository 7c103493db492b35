"""Checks of a package's door: the public names of ``__all__``, which are loaded when they are first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

#: Libraries that an import of a door must not load.
HEAVY = frozenset({"polars", "pyarrow", "numpy", "pyspark", "confluent_kafka"})


def check_names_agree(package: ModuleType) -> None:
    """Check that ``__all__``, the lazy table and the imports for type checkers hold the same names and modules."""
    assert len(set(package.__all__)) == len(package.__all__)
    assert set(package.__all__) == set(package._MODULE_BY_NAME)
    assert _imports_for_type_checkers(package) == package._MODULE_BY_NAME
    assert set(package.__all__) <= set(dir(package))


def check_names_resolve(package: ModuleType) -> None:
    """Check that each public name can be loaded, and that no module of the same name would replace it."""
    modules = {path.stem for path in Path(str(package.__file__)).parent.iterdir()}
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name not in modules, f"{package.__name__}.{name} is a module too, which would replace the public name"


def loaded_libraries(package: ModuleType) -> frozenset[str]:
    """Return the heavy libraries that an import of the package alone loads in a new process."""
    name = package.__name__
    program = f"import sys, {name}; print(*sorted({{module.partition('.')[0] for module in sys.modules}}))"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return HEAVY & set(completed.stdout.split())


def deep_imports(source: str) -> list[str]:
    """Return the modules behind a door that a program imports."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            modules.append(node.module)
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    return [module for module in modules if module.startswith(("streamcore.", "rulecore."))]


def _imports_for_type_checkers(package: ModuleType) -> dict[str, str]:
    tree = ast.parse(Path(str(package.__file__)).read_text())
    imports = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
    return {
        alias.name: str(node.module) for node in imports if isinstance(node, ast.ImportFrom) for alias in node.names
    }
