"""Makes the environment ``.venv`` out of nothing but a Python, with the standard library only.

    python3 tools/bootstrap.py runtime     what `make run` needs
    python3 tools/bootstrap.py dev         and what tests and checks need

Everything is installed from lock files, by hash. uv does the installing, for it is several times quicker; where it
cannot (an index that only pip's configuration knows), pip does it. A stamp in the environment holds a digest of all
that went in, so that a call with nothing to do takes a moment. Safe to interrupt and to call twice at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MINIMUM = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TOOLS = ROOT / "requirements" / "bootstrap.lock"
#: Profile -> its lock. ``dev`` contains ``runtime``.
LOCKS = {"runtime": ROOT / "requirements" / "runtime.lock", "dev": ROOT / "requirements" / "dev.lock"}

#: Where the product's own code is.
OURS = ("libs", "cli", "services")


def say(line: str) -> None:
    """Print for a person."""
    print("setup:", line, file=sys.stderr, flush=True)


def digest(profile: str) -> str:
    """Of everything that the environment is made of."""
    made_of = hashlib.sha256(f"{ROOT} {sys.version_info[:2]} {profile}".encode())
    for path in (TOOLS, LOCKS[profile], ROOT / "pyproject.toml"):
        made_of.update(path.read_bytes())
    return made_of.hexdigest()


def stamp(profile: str) -> Path:
    """Return the file that records the installed versions."""
    return VENV / f".headgate-{profile}"


def is_ready(profile: str) -> bool:
    """Return whether nothing has to be done."""
    found = stamp(profile)
    return PYTHON.exists() and found.exists() and found.read_text() == digest(profile)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One set-up at a time in this checkout."""
    with (ROOT / ".setup.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of this checkout")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def make_venv() -> None:
    """Create ``.venv``, or make it anew when its Python is gone or of another version."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if PYTHON.exists() and (VENV / "lib" / f"python{version}").exists() and works([PYTHON, "-m", "pip", "--version"]):
        return
    say(f"making .venv with Python {version}")
    done = subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stdout + done.stderr).strip().splitlines()
        sys.exit(
            f"setup: cannot make .venv: {reason[-1] if reason else 'no reason given'}; "
            f"on Debian and Ubuntu: apt install python{version}-venv"
        )


def works(command: list[object]) -> bool:
    """Return whether a command succeeds; ignore its output."""
    return subprocess.run([str(c) for c in command], capture_output=True, check=False).returncode == 0


def pip(*arguments: object) -> list[str]:
    """Return a command line of the environment's own pip."""
    return [str(a) for a in (PYTHON, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-input")]


def uv_environment() -> dict[str, str]:
    """uv does not read pip's configuration: hand over the index that the user set for pip, if any."""
    asked = subprocess.run(pip("config", "get", "global.index-url"), capture_output=True, text=True, check=False)
    index = os.environ.get("PIP_INDEX_URL") or (asked.stdout.strip() if asked.returncode == 0 else "")
    ours = {"UV_SYSTEM_CERTS": "1", "VIRTUAL_ENV": str(VENV)}
    return {**os.environ, **({"UV_DEFAULT_INDEX": index} if index else {}), **ours}


def install_with_uv(profile: str) -> bool:
    """Install with uv; False when it did not go through."""
    if not works([PYTHON, "-m", "uv", "--version"]):
        return False
    uv = [str(PYTHON), "-m", "uv", "pip", "install", "--python", str(PYTHON)]
    environment = uv_environment()
    # pyspark comes as source only; what builds it is the setuptools of our lock, not one fetched for the purpose.
    locked = [*uv, "--no-build-isolation", "--compile-bytecode", "--require-hashes", "-r", str(LOCKS[profile])]
    editable = [*uv, "--offline", "--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    return all(subprocess.run(c, env=environment, check=False).returncode == 0 for c in (locked, editable))


def install_with_pip(profile: str) -> bool:
    """Install the same with pip."""
    locked = pip("install", "--require-hashes", "--no-build-isolation", "--no-deps", "-r", LOCKS[profile])
    editable = pip("install", "--no-deps", "--no-build-isolation", "-e", ROOT)
    return all(subprocess.run(c, check=False).returncode == 0 for c in (locked, editable))


def compile_ours() -> None:
    """Bytecode of the product, as an installed package has it: else each process of a machine that does not write any
    (``PYTHONDONTWRITEBYTECODE``) reads the sources anew, which is half of the time of a short command."""
    subprocess.run([PYTHON, "-m", "compileall", "-q", *(ROOT / part for part in OURS)], check=False)


def compile_kernels() -> None:
    """Compile what workers run as machine code; otherwise the first one does, which takes it ten seconds."""
    say("compiling the decoder of JSON")
    if subprocess.run([PYTHON, "-m", "streamcore.decode.walk"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        say("compiling failed; the first worker will compile, or say why it cannot")


def install(profile: str) -> None:
    """Everything, with messages; ends the process when it cannot be done."""
    began = time.monotonic()
    make_venv()
    say("installing the installer (uv, setuptools)")
    if subprocess.run(pip("install", "-q", "--require-hashes", "-r", TOOLS), check=False).returncode != 0:
        sys.exit("setup: the package index was not reached, or its packages differ from the lock; see above")
    say(f"installing {LOCKS[profile].name} (Spark alone is 430 MB; once)")
    if not install_with_uv(profile):
        say("uv did not manage; trying with pip, which takes longer")
        if not install_with_pip(profile):
            sys.exit("setup: installing failed; see above, and call it again: what is there will be used")
    compile_ours()
    compile_kernels()
    stamp(profile).write_text(digest(profile))
    if profile == "dev":  # which contains the other
        stamp("runtime").write_text(digest("runtime"))
    say(f"ready after {time.monotonic() - began:.0f} s")


def main() -> None:
    """Look at the stamp, and install if need be."""
    if sys.version_info < MINIMUM:
        sys.exit(f"setup: this is Python {sys.version.split()[0]}; Headgate needs {MINIMUM[0]}.{MINIMUM[1]} or newer")
    if len(sys.argv) != 2 or sys.argv[1] not in LOCKS:
        sys.exit(__doc__)
    profile = sys.argv[1]
    if is_ready(profile):
        return
    with alone():
        if not is_ready(profile):
            install(profile)


if __name__ == "__main__":
    main()
