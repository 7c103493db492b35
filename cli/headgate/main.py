"""The ``headgate`` command: finds the group, runs it, and turns every error into one line and an exit code.

stdout is data, stderr is talk. Exit codes: 0 done, 1 refused or failed (one line says why and what to do),
2 wrong usage, 130 interrupted. A traceback is a bug of ours and is shown as one.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import sys
from collections.abc import Sequence

import click

from headgate import commands
from headgate.console import no_pandas
from headgate.console.lazy_group import LazyGroup
from headgate.console.messages import to_stderr
from streamcore.errors import StreamError

FAILED, USAGE, INTERRUPTED = 1, 2, 130


#: The modules of ``headgate.commands``; each holds one click command called ``command``.
_PLACES = {one.name: f"{commands.__name__}.{one.name}:command" for one in pkgutil.iter_modules(commands.__path__)}


@click.command(
    cls=LazyGroup,
    import_paths=_PLACES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
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


def main() -> None:
    """Run the command and exit.

    What a command loads lives as long as the command. To look through it at every 700 new objects, as Python does, is a
    twelfth of the time of a short one, and to look for what may be freed of it at the end is another tenth. NumPy
    starts a thread a core for linear algebra, which nothing here does. Pydantic looks through all that is installed for
    plugins of its own, of which there are none.
    """
    gc.set_threshold(400_000)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    no_pandas.block()
    code = run()
    gc.freeze()
    sys.exit(code)
