#!/bin/sh
# Starts Python for Spark's workers with the path of the driver. Spark puts the archives of an installed pyspark before
# it. They hold the same modules, but nothing in an archive is compiled: each process that Spark starts would compile
# what it imports, a second of processor time.
PYTHONPATH="$STREAMCORE_PYTHONPATH" exec "$STREAMCORE_PYTHON" "$@"
