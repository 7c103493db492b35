"""The ``headgate`` command: finds the group, runs it, and turns every error into one line and an exit code.

stdout is data, stderr is talk. Exit codes: 0 done, 1 refused or failed (one line says why and what to do),
2 wrong usage, 130 interrupted. A traceback is a bug of ours and is shown as one.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

import click

from headgate import commands
from headgate.talk import to_stderr
from streamcore.errors import StreamError

FAILED, USAGE, INTERRUPTED = 1, 2, 130


class Groups(click.Group):
    """The modules of ``headgate.commands``; each holds one click command called ``command``. Imported when used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Their names, sorted."""
        return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or None."""
        if cmd_name not in self.list_commands(ctx):
            return None
        found = importlib.import_module(f"{commands.__name__}.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found


@click.command(cls=Groups, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="headgate")
def headgate() -> None:
    """Event streams from Kafka, exactly once: rules and alerts, clean rows, sessions, search documents.

    Every command prints its result on stdout (-o json for programs) and its progress on stderr.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code."""
    try:
        result = headgate.main(args=arguments, prog_name="headgate", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        to_stderr("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has seen enough
        sys.stderr.close()
        return 0
    except StreamError as error:
        to_stderr(f"headgate: {error}")
        return FAILED
    return result if isinstance(result, int) else 0


class _WithoutPandas:
    """Refuses pandas to pyarrow, which would load it, for a second, only to know its types. Nothing here uses it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if name == "pandas":
            raise ModuleNotFoundError("the command does without pandas", name=name)


def main() -> None:
    """The entry point.

    What a command loads lives as long as the command. To look through it at every 700 new objects, as Python does, is a
    twelfth of the time of a short one.
    """
    gc.set_threshold(100_000)
    sys.meta_path.insert(0, _WithoutPandas())
    sys.exit(run())
