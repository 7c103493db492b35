"""The ``ServiceDefinition`` of a program, with which it is a service like every other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamcore.service.definition import AppFactory, ServiceDefinition
from streamcore.service.program.reference import load_program, takes_documents
from streamcore.service.program.settings import ProgramSettings
from streamcore.wire.lanes import STATUS

if TYPE_CHECKING:
    from streamcore.topology.topology import Topology

#: The module that runs a program as a process.
MODULE = "streamcore.service.program"


def program_service(reference: str) -> ServiceDefinition[ProgramSettings]:
    """Import the program and return its definition. ``ConfigError`` if it cannot be imported.

    The name of the app is that of the topology, unless the settings or their model name another.
    """
    program = load_program(reference)

    def factory() -> AppFactory[ProgramSettings]:
        from streamcore.service.program.app import ProgramApp

        return ProgramApp(program)

    def lanes(settings: ProgramSettings) -> tuple[str, ...]:
        topology = program.topology(settings)
        return (*topology.lanes, STATUS) if takes_documents(program, topology) else topology.lanes

    defaults = {} if program.app_name is None else {"app": program.app_name}
    return ServiceDefinition("headgate-program", program.settings, factory, lanes, defaults)


def load_topology(reference: str, settings: ProgramSettings) -> Topology:
    """Return the topology of a program for these settings."""
    return load_program(reference).topology(settings)
