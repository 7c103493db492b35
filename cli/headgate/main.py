"""The ``headgate`` command: runs a subcommand, and turns every expected error into one line and an exit code.

Results go to stdout, messages to stderr. ``CommandExit`` lists the exit codes. A traceback is a bug in Headgate and is
shown as one.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import sys
from collections.abc import Sequence

import click

from headgate import commands
from headgate.console.lazy_group import LazyGroup
from headgate.console.messages import to_stderr
from streamcore.codes import ExitCode
from streamcore.environment import EnvironmentVariable, Reader
from streamcore.errors import StreamError
from streamcore.wire import no_pandas

_PYDANTIC_PLUGINS = EnvironmentVariable(
    "PYDANTIC_DISABLE_PLUGINS",
    "Plugins of Pydantic that are not loaded.",
    Reader.COMMAND,
    default="`__all__`",
)
_OPENBLAS_THREADS = EnvironmentVariable(
    "OPENBLAS_NUM_THREADS", "Threads of NumPy for linear algebra.", Reader.COMMAND, default="`1`"
)


class CommandExit(ExitCode):
    """Exit codes of the command `headgate`. The help of a command names those that mean something else there."""

    DONE = (0, "The command is done, or the reader of its output closed the pipe.", "Nothing.")
    FAILED = (
        1,
        "The command is rejected or fails; for a check, it finds an error.",
        "Follow the line on standard error: it has the reason and the next step.",
    )
    USAGE = (2, "An argument or option is wrong.", "Compare the call with `--help`.")
    INTERRUPTED = (130, "Ctrl-C interrupts the command.", "Start the command again.")


#: The modules of ``headgate.commands``; each holds one click command called ``command``.
_IMPORT_PATHS = {
    module.name: f"{commands.__name__}.{module.name}:command" for module in pkgutil.iter_modules(commands.__path__)
} | {
    "features": f"{commands.__name__}.rules.features:command",
    "upgrades": f"{commands.__name__}.status.upgrades:command",
}


@click.command(
    cls=LazyGroup,
    import_paths=_IMPORT_PATHS,
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
        return CommandExit.INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has closed the pipe
        sys.stderr.close()
        return CommandExit.DONE
    except StreamError as error:
        to_stderr(f"headgate: {error}")
        return CommandExit.FAILED
    return result if isinstance(result, int) else CommandExit.DONE


def main() -> None:
    """Run the command and exit.

    Loaded modules live as long as the process, so garbage collection runs rarely: at Python's default threshold it
    takes a twelfth of the time of a short command, and at exit another tenth. NumPy would start one thread per core
    for linear algebra, which the command does not use. Pydantic would search all installed packages for plugins, of
    which there are none.
    """
    gc.set_threshold(400_000)
    os.environ.setdefault(_PYDANTIC_PLUGINS, "__all__")
    os.environ.setdefault(_OPENBLAS_THREADS, "1")
    no_pandas.block()
    code = run()
    gc.freeze()
    sys.exit(code)
