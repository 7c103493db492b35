"""The last step before the lanes: marks each row with the routes that take it, and masks personal fields.

Routes are evaluated before masks, so a route may depend on a value that does not leave the app.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headgate_etl.documents import RouteTarget
from headgate_etl.masking import Mask, mask_columns
from rulecore.language import Expr, columns
from rulecore.language.columnar.compiler import to_polars
from rulecore.mapping.physical_rows import ROW, to_physical
from rulecore.mapping.row_codes import RowCode
from rulecore.mapping.types import CODE, REASON
from streamcore.schema import Type

#: The prefix of the boolean columns, one per route, that are true where the route takes the row.
_TO = "@to:"


@dataclass(frozen=True)
class Route:
    """A lane of rows. ``when``: the condition of the rows that the route takes; None: all rows. ``key``: the columns of
    the record key. ``merge``: the column whose members become members of the record; "": none.
    """

    name: str
    when: Expr | None
    columns: tuple[str, ...]
    key: tuple[str, ...]
    to: RouteTarget
    merge: str = ""

    @property
    def is_taken(self) -> pl.Expr:
        """The condition of the rows that the route takes. It reads a column that ``RouteRows`` adds."""
        return pl.col(_TO + self.name)


@dataclass(frozen=True)
class RouteRows:
    """Adds the columns that ``Route.is_taken`` reads, and masks personal fields.

    ``types``: the types of the model's fields. ``otherwise``: the route of rows that no route takes; None: such rows
    get ``CODE`` and ``REASON``.
    """

    types: Mapping[str, Type]
    routes: tuple[Route, ...]
    masks: Mapping[str, Mask]
    otherwise: str | None

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        used = frozenset().union(*(columns(r.when) for r in self.routes if r.when is not None))
        inputs = to_physical(rows, {name: self.types[name] for name in self.types if name in used})
        conditions = inputs.with_columns(
            self._route_condition(route).alias(_TO + route.name) for route in self.routes
        ).drop(ROW)
        taken = conditions.select(_TO + route.name for route in self.routes)
        is_unrouted = ~pl.any_horizontal(pl.all())
        if self.otherwise is not None:
            taken = taken.with_columns((pl.col(_TO + self.otherwise) | is_unrouted).alias(_TO + self.otherwise))
        error_columns = taken.select(
            pl.when(is_unrouted).then(pl.lit(RowCode.NO_ROUTE)).alias(CODE),
            pl.when(is_unrouted).then(pl.lit("no route takes this row")).alias(REASON),
        )
        return mask_columns(rows, self.masks).hstack(taken).hstack(error_columns)

    def _route_condition(self, route: Route) -> pl.Expr:
        """Return the condition of the route; false where it is null."""
        if route.when is None:
            return pl.repeat(value=True, n=pl.len())
        return to_polars(route.when).fill_null(value=False)
