"""``python -m tests.harness.oracles.spark_expressions``: the values that Spark SQL gives expressions over rows.

Reads a JSON object from standard input (``schema``: DDL; ``rows``: JSON objects; ``expressions``; ``jars``: the folder
of further jars, whose archive of classes the JVM can use). Writes the values of each row as a JSON array, NULL as null.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from streamcore.spark.session import SparkSettings, open_session

# A missing element or key is NULL, and the size of NULL is NULL.
_OPTIONS = {"spark.sql.ansi.enabled": "false", "spark.sql.legacy.sizeOfNull": "false"}


def main() -> None:
    """Evaluate what is asked."""
    asked = json.load(sys.stdin)
    session = open_session("expressions", SparkSettings(Path(asked["jars"]), "local[1]", 1, extra=_OPTIONS))
    lines = session.createDataFrame([(json.dumps(row),) for row in asked["rows"]], "line string")
    rows = lines.selectExpr(f"from_json(line, '{asked['schema']}') as row").selectExpr("row.*")
    texts = [f"to_json(struct({text} as v), map('ignoreNullFields', 'false'))" for text in asked["expressions"]]
    found = rows.selectExpr(*(f"{text} as c{number}" for number, text in enumerate(texts))).collect()
    print(json.dumps([[json.loads(value)["v"] for value in row] for row in found]))
    session.stop()


if __name__ == "__main__":
    main()
