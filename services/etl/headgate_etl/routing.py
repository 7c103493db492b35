"""The last step before the lanes: masks personal fields, and marks each row with the routes that take it.

Routes are evaluated before masks, so a route may depend on a value that does not leave the app.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headgate_etl.columns import ROW, to_physical
from headgate_etl.documents import RouteTarget
from headgate_etl.mapping_types import CODE, REASON
from headgate_etl.masking import Mask, mask_columns
from headgate_etl.row_codes import RowCode
from rulecore.language import Expr, columns
from rulecore.language.columnar.compiler import to_polars
from streamcore.schema import Type

#: The prefix of the columns that say which routes take a row.
_TO = "@to:"


@dataclass(frozen=True)
class Route:
    """A lane for the rows for which ``when`` is true; None: all."""

    name: str
    when: Expr | None
    columns: tuple[str, ...]
    key: tuple[str, ...]
    to: RouteTarget

    @property
    def is_taken(self) -> pl.Expr:
        """True for its rows."""
        return pl.col(_TO + self.name)


@dataclass(frozen=True)
class RouteRows:
    """``otherwise``: the route of rows that no other takes; None: they have ``CODE`` and ``REASON``."""

    types: Mapping[str, Type]
    routes: tuple[Route, ...]
    masks: Mapping[str, Mask]
    otherwise: str | None

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        used = frozenset().union(*(columns(r.when) for r in self.routes if r.when is not None))
        asked = to_physical(rows, {name: self.types[name] for name in self.types if name in used})
        answers = asked.with_columns(
            self._route_condition(route).alias(_TO + route.name) for route in self.routes
        ).drop(ROW)
        taken = answers.select(_TO + route.name for route in self.routes)
        none = ~pl.any_horizontal(pl.all())
        if self.otherwise is not None:
            taken = taken.with_columns((pl.col(_TO + self.otherwise) | none).alias(_TO + self.otherwise))
        why = taken.select(
            pl.when(none).then(pl.lit(RowCode.NO_ROUTE)).alias(CODE),
            pl.when(none).then(pl.lit("no route takes this row")).alias(REASON),
        )
        return mask_columns(rows, self.masks).hstack(taken).hstack(why)

    def _route_condition(self, route: Route) -> pl.Expr:
        """Return the route's condition; a row for which it is unknown is not taken."""
        if route.when is None:
            return pl.repeat(value=True, n=pl.len())
        return to_polars(route.when).fill_null(value=False)
