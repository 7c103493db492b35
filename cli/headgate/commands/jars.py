"""``headgate jars``: the jars that Spark needs beyond those of pyspark."""

from __future__ import annotations

import click

from headgate.console.output import Output, emit, output_option


@click.command(name="jars")
@click.option("--s3", is_flag=True, help="Also those for checkpoints and savepoints in a bucket.")
@output_option
def command(output: Output, *, s3: bool) -> None:
    """Fetch the jars that Spark needs (once), and print their folder: the setting `jars` of a service.

    headgate run and headgate up do this by themselves, and the image has the jars.
    """
    from headgate.local import jars, java

    folder = jars.ensure(jars.JarSet.S3 if s3 else jars.JarSet.SPARK, java.ensure())
    emit(output, {"folder": str(folder)}, str(folder))
