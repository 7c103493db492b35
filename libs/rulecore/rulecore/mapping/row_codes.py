"""The codes of rows that a mapping rejects."""

from __future__ import annotations

from streamcore.codes import Code


class RowCode(Code):
    """Codes of rows that a mapping rejects, beside those of records that cannot be decoded."""

    BAD_VALUE = (
        "bad_value",
        "An expression fails on a value, such as a division by zero, an overflow or a text that is no number.",
        "Correct the data, or write an expression with a fallback, such as `coalesce(x, 0)`.",
    )
    NULL_FIELD = (
        "null_field",
        "A field of the model that is `not null` is null.",
        "Correct the data or the expression of the field, or declare the field without `not null`.",
    )
    NOT_IN_LIST = (
        "not_in_list",
        "A list whose `missing` is `dead_letter` does not have the key.",
        "Publish the list with the key, or set `lists.*.missing` to `null`.",
    )
    TOO_MANY_ELEMENTS = (
        "too_many_elements",
        "The array of `explode` has more elements than `explode.max_elements`.",
        "Raise the limit, or let the producer send fewer elements in a record.",
    )
    RULE = (
        "rule:",
        "A condition of `rules` is false; the name of the rule follows the colon.",
        "Correct the data or the rule.",
    )
    NO_ROUTE = (
        "no_route",
        "No route takes the row, and `otherwise` is `dead_letter`.",
        "Add a route, or name one in `otherwise`.",
    )
