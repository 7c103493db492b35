"""``headgate plan``: shows how a program runs, without running it."""

from __future__ import annotations

import click

from headgate.programs.options import program_options
from headgate.programs.program_settings import ProgramOptions

_PLAN, _GRAPH, _MERMAID = "plan", "graph", "mermaid"


@click.command(name="plan")
@program_options
@click.option(
    "--as",
    "form",
    type=click.Choice([_PLAN, _GRAPH, _MERMAID]),
    default=_PLAN,
    show_default=True,
    help="Stages, shuffles and state; the graph of the steps; or the graph as a Mermaid flowchart.",
)
def command(program: str, options: ProgramOptions, form: str) -> None:
    """Show how PROGRAM runs: its stages, shuffles, state, topics and lanes. Nothing is started.

    PROGRAM is MODULE:TOPOLOGY or FILE.py:TOPOLOGY, as for headgate run.
    """
    from streamcore.wire import no_pandas

    no_pandas.unblock()
    from headgate.programs.program_settings import describe_checkpoints, load_program
    from streamcore.service.program.definition import load_topology

    loaded = load_program(program, options)
    topology = load_topology(program, loaded.settings)
    if form != _PLAN:
        click.echo(topology.text() if form == _GRAPH else topology.mermaid())
        return
    app = loaded.service.build_app(loaded.settings)
    click.echo(topology.plan().text())
    click.echo(f"reads {', '.join((*app.topics, app.control_topic))}, with {app.shards} shards")
    for lane, topic in app.lanes.items():
        click.echo(f"lane {lane} -> topic {topic}")
    for lane in sorted(app.tables):
        click.echo(f"lane {lane} -> a sink of the settings")
    click.echo(describe_checkpoints(loaded.settings))
