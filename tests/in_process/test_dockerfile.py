"""The stage of the Dockerfile that fetches the jars has all modules that it imports."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_stage_that_fetches_jars_copies_every_module_that_it_imports(tmp_path: Path) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    stage = dockerfile.partition(" AS jars\n")[2].partition("\nFROM ")[0]
    copies = [line.split()[1:] for line in stage.splitlines() if line.startswith("COPY ")]
    assert copies
    for *sources, target in copies:
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / target, dirs_exist_ok=True)
            else:
                (tmp_path / target).mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, tmp_path / target)
    (modules,) = re.findall(r"from headgate\.local import ([a-z, ]+);", stage)
    # The folder comes before what is installed, as in the build, where the packages of the repository are not.
    code = f"""if 1:
        import sys
        from headgate.local import {modules}
        own = [m for name, m in sys.modules.items() if name.partition('.')[0] in ('headgate', 'streamcore')]
        print([m.__file__ for m in own if not m.__file__.startswith({str(tmp_path)!r})])"""
    command = [sys.executable, "-c", code]
    completed = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": "cli"}, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip() == "[]", "all of it from the folders that are copied"
