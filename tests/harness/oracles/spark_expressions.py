"""``python -m tests.harness.oracles.spark_expressions``: the values that Spark SQL gives expressions over rows.

Reads a JSON object from standard input (``schema``: DDL; ``rows``: JSON objects; ``expressions``). Writes the values
of each row as a JSON array, NULL as null.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

_OPTIONS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # A missing element or key is NULL, and the size of NULL is NULL.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.legacy.sizeOfNull": "false",
    "spark.sql.session.timeZone": "UTC",
}


def main() -> None:
    """Evaluate what is asked."""
    asked = json.load(sys.stdin)
    session = SparkSession.builder.master("local[1]").config(map=_OPTIONS).getOrCreate()
    lines = session.createDataFrame([(json.dumps(row),) for row in asked["rows"]], "line string")
    rows = lines.selectExpr(f"from_json(line, '{asked['schema']}') as row").selectExpr("row.*")
    texts = [f"to_json(struct({text} as v), map('ignoreNullFields', 'false'))" for text in asked["expressions"]]
    found = rows.selectExpr(*(f"{text} as c{number}" for number, text in enumerate(texts))).collect()
    print(json.dumps([[json.loads(value)["v"] for value in row] for row in found]))
    session.stop()


if __name__ == "__main__":
    main()
