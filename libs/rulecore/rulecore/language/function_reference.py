"""The reference of the functions: summary, result type, NULL behaviour and examples of each.

``docs/reference/functions.md`` is generated from this table. A test evaluates every example with the reference
evaluator and with columns, and fails when a function has no entry. Nothing at run time imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_ANY_NULL = "NULL if any argument is NULL"
_NEVER = "never NULL"
_IGNORES_NULL_ELEMENTS = "ignores NULL; NULL if the array is NULL or no element is left"


@dataclass(frozen=True, slots=True)
class FunctionReference:
    """The documentation of a function or aggregate.

    ``examples``: of a function, conditions that are TRUE; of an aggregate, conditions of ``having`` on ``amount``.
    """

    summary: str
    result: str
    examples: tuple[str, ...]
    nulls: str = _ANY_NULL


FUNCTION_REFERENCE: Mapping[str, FunctionReference] = {
    "abs": FunctionReference("Absolute value.", "the argument's type", ("abs(-2.50) = 2.50",)),
    "array": FunctionReference(
        "An array of the arguments.",
        "array of the common type of the arguments",
        ("cardinality(array(1, 2)) = 2",),
        _NEVER,
    ),
    "array_contains": FunctionReference(
        "Whether an element of the array equals the value. ``contains(array, value)`` is the same.",
        "boolean",
        ("array_contains(array('a', 'b'), 'b')",),
        "NULL if the array or the value is NULL, or if no element equals it and one is NULL",
    ),
    "array_max": FunctionReference(
        "Largest element. Where no aggregate is accepted, ``max(array)`` is the same.",
        "the type of the elements",
        ("array_max(array(1, 3, 2)) = 3",),
        _IGNORES_NULL_ELEMENTS,
    ),
    "array_min": FunctionReference(
        "Smallest element. Where no aggregate is accepted, ``min(array)`` is the same.",
        "the type of the elements",
        ("array_min(array(2, 1, 3)) = 1",),
        _IGNORES_NULL_ELEMENTS,
    ),
    "array_sum": FunctionReference(
        "Sum of the elements, exact for longs and decimals. Where no aggregate is accepted, also ``sum(array)``.",
        "the type of the elements, widened",
        ("array_sum(array(1.5, 2.5)) = 4",),
        _IGNORES_NULL_ELEMENTS,
    ),
    "arrays_overlap": FunctionReference(
        "Whether the arrays have an equal element.",
        "boolean",
        ("arrays_overlap(array(1, 2), array(2, 3))", "not arrays_overlap(array(1), array(2))"),
        "NULL if an array is NULL, or if no elements are equal, none of the arrays is empty and one has a NULL",
    ),
    "cardinality": FunctionReference(
        "Number of elements of an array, or of entries of a map.", "long", ("cardinality(array(1, 2)) = 2",)
    ),
    "ceil": FunctionReference(
        "Smallest whole number that is not smaller.", "long", ("ceil(1.2) = 2", "ceil(-1.2) = -1")
    ),
    "cidr_match": FunctionReference(
        "Whether an IPv4 or IPv6 address lies in a network.",
        "boolean",
        ("cidr_match('10.1.2.3', '10.0.0.0/8')", "not cidr_match('no address', '10.0.0.0/8')"),
        "NULL if the text is NULL; FALSE if it is no address",
    ),
    "coalesce": FunctionReference(
        "First argument that is not NULL.",
        "the common type of the arguments",
        ("coalesce(nullif('a', 'a'), 'b') = 'b'",),
        "NULL only if all arguments are NULL",
    ),
    "concat": FunctionReference("All texts, one after the other.", "text", ("concat('head', 'gate') = 'headgate'",)),
    "contains": FunctionReference("Whether the text contains the part.", "boolean", ("contains('headgate', 'dga')",)),
    "date_trunc": FunctionReference(
        "Start of the UTC second, minute, hour, day, week (Monday), month, quarter or year.",
        "timestamp",
        ("date_trunc('hour', to_timestamp('2026-01-05T10:17:00Z')) = to_timestamp('2026-01-05T10:00:00Z')",),
    ),
    "dayofweek": FunctionReference(
        "Day of the week in UTC, from 1 (Sunday) to 7 (Saturday).",
        "long",
        ("dayofweek(to_timestamp('2026-01-05T10:17:00Z')) = 2",),
    ),
    "element_at": FunctionReference(
        "Element of an array by its number: 1 is the first, -1 the last. Of a map, the value of a key: ``map[key]``.",
        "the type of the elements or values",
        ("element_at(array('a', 'b'), -1) = 'b'", "element_at(map('a', 1), 'a') = 1"),
        "NULL if an argument is NULL, and if there is no such element",
    ),
    "ends_with": FunctionReference(
        "Whether the text ends with the given end.", "boolean", ("ends_with('a@b.org', '.org')",)
    ),
    "exp": FunctionReference("The exponential of a number.", "double", ("exp(0) = 1.0",)),
    "floor": FunctionReference(
        "Largest whole number that is not larger.", "long", ("floor(1.8) = 1", "floor(-1.2) = -2")
    ),
    "get": FunctionReference(
        "Element of an array by its number, from 0: ``array[number]``.",
        "the type of the elements",
        ("get(array('a', 'b'), 1) = 'b'", "get(array('a'), 7) is null"),
        "NULL if an argument is NULL, and if there is no such element",
    ),
    "greatest": FunctionReference(
        "Largest argument.",
        "the common type of the arguments",
        ("greatest(1, 3, 2) = 3", "greatest(to_long('x'), 3) = 3"),
        "ignores NULL; NULL only if all arguments are NULL",
    ),
    "hour": FunctionReference(
        "Hour of the day in UTC, 0 to 23.", "long", ("hour(to_timestamp('2026-01-05T10:17:00Z')) = 10",)
    ),
    "least": FunctionReference(
        "Smallest argument.",
        "the common type of the arguments",
        ("least(3, 1, 2) = 1", "least(to_long('x'), 3) = 3"),
        "ignores NULL; NULL only if all arguments are NULL",
    ),
    "length": FunctionReference("Number of characters.", "long", ("length('headgate') = 8", "length('') = 0")),
    "ln": FunctionReference(
        "Natural logarithm.",
        "double",
        ("ln(1) = 0.0", "ln(0) is null"),
        "NULL if the number is NULL, zero or negative",
    ),
    "lower": FunctionReference("The text in lower case.", "text", ("lower('DE') = 'de'",)),
    "map": FunctionReference(
        "A map of keys, which are constant texts, and values.",
        "map of the common type of the values",
        ("map('a', 1, 'b', 2)['b'] = 2",),
        _NEVER,
    ),
    "map_contains_key": FunctionReference(
        "Whether the map has the key.", "boolean", ("map_contains_key(map('a', 1), 'a')",)
    ),
    "map_keys": FunctionReference("The keys of a map.", "array of text", ("map_keys(map('a', 1))[0] = 'a'",)),
    "map_values": FunctionReference(
        "The values of a map.", "array of the type of the values", ("map_values(map('a', 1))[0] = 1",)
    ),
    "minute": FunctionReference(
        "Minute of the hour, 0 to 59.", "long", ("minute(to_timestamp('2026-01-05T10:17:00Z')) = 17",)
    ),
    "nullif": FunctionReference(
        "The first argument, or NULL if both are equal.",
        "the type of the first argument",
        ("nullif('a', 'b') = 'a'", "nullif('a', 'a') is null"),
        "NULL if the first argument is NULL or both are equal",
    ),
    "power": FunctionReference("The first number to the power of the second.", "double", ("power(2, 10) = 1024.0",)),
    "regexp_extract": FunctionReference(
        "Text of a group in the first match of a pattern: of group 1, or of the group with the given number.",
        "text",
        ("regexp_extract('order-17', '([a-z]+)-([0-9]+)', 2) = '17'", "regexp_extract('order', '([0-9]+)') is null"),
        "NULL if the text is NULL or nothing matches",
    ),
    "regexp_like": FunctionReference(
        "Whether a pattern matches anywhere in the text. Patterns are checked when the rule is read.",
        "boolean",
        ("regexp_like('order-17', '-[0-9]+$')",),
    ),
    "replace": FunctionReference(
        "The text with every occurrence of a part replaced.", "text", ("replace('a-b-c', '-', '') = 'abc'",)
    ),
    "round": FunctionReference(
        "Number rounded to the given decimal places (default 0), halves away from zero.",
        "decimal for decimals, long for longs, double for doubles",
        ("round(2.345, 2) = 2.35", "round(-2.5) = -3"),
    ),
    "sqrt": FunctionReference(
        "Square root.",
        "double",
        ("sqrt(9) = 3.0",),
        "NULL if the number is NULL; NaN if it is negative",
    ),
    "starts_with": FunctionReference(
        "Whether the text starts with the given start.", "boolean", ("starts_with('headgate', 'head')",)
    ),
    "substr": FunctionReference(
        "Part of the text from a position (1 is the first, negative counts from the end), of a length or to the end.",
        "text",
        ("substr('headgate', 5) = 'gate'", "substr('headgate', 1, 4) = 'head'", "substr('headgate', -4) = 'gate'"),
    ),
    "to_decimal": FunctionReference(
        "A text or number as a decimal of the given digits and places. Only doubles are rounded.",
        "decimal(digits, places)",
        ("to_decimal('12.34', 10, 2) = 12.34", "to_decimal('12.345', 10, 2) is null"),
        "NULL if the value is NULL, not a number, or does not fit the digits and places",
    ),
    "to_double": FunctionReference(
        "A text or number as a double.",
        "double",
        ("to_double('1.5') = 1.5", "to_double('x') is null"),
        "NULL if the value is NULL or no number",
    ),
    "to_long": FunctionReference(
        "A text or number as a whole number.",
        "long",
        ("to_long('17') = 17", "to_long('x') is null"),
        "NULL if the value is NULL, no whole number, or too large",
    ),
    "to_text": FunctionReference(
        "A number, boolean or timestamp as text.", "text", ("to_text(17) = '17'", "to_text(true) = 'true'")
    ),
    "to_timestamp": FunctionReference(
        "A text as a timestamp: ISO 8601 or the given format, and a zone for times without an offset (default UTC).",
        "timestamp",
        (
            "to_timestamp('05.01.2026', 'dd.MM.yyyy') = to_timestamp('2026-01-05T00:00:00Z')",
            "to_timestamp('yesterday') is null",
        ),
        "NULL if the text is NULL or does not follow the format",
    ),
    "to_utc_timestamp": FunctionReference(
        "A local time of a zone as a timestamp in UTC.",
        "timestamp",
        (
            "to_utc_timestamp(to_timestamp('2026-01-05T10:00:00Z'), 'Europe/Berlin')"
            " = to_timestamp('2026-01-05T09:00:00Z')",
        ),
    ),
    "trim": FunctionReference("The text without spaces at both ends.", "text", ("trim('  a ') = 'a'",)),
    "upper": FunctionReference("The text in upper case.", "text", ("upper('de') = 'DE'",)),
}

_THREE_VALUED = "NULL if the array is NULL, or if no element decides and the condition is NULL for one"

HIGHER_ORDER_REFERENCE: Mapping[str, FunctionReference] = {
    "exists": FunctionReference(
        "Whether the condition is true for an element. ``any`` is the same.",
        "boolean",
        ("exists(array(1, 200), x -> x > 100)",),
        _THREE_VALUED,
    ),
    "filter": FunctionReference(
        "The elements for which the condition is true.",
        "the type of the array",
        ("cardinality(filter(array(1, 200), x -> x > 100)) = 1",),
        "NULL if the array is NULL",
    ),
    "forall": FunctionReference(
        "Whether the condition is true for all elements. ``all`` is the same.",
        "boolean",
        ("forall(array(1, 2), x -> x > 0)",),
        _THREE_VALUED,
    ),
    "transform": FunctionReference(
        "The results of the expression for the elements.",
        "array of the type of the results",
        ("transform(array(1, 2), x -> x * 2)[1] = 4",),
        "NULL if the array is NULL",
    ),
}

_IGNORES_NULL = "ignores NULL; NULL if no value is left"

AGGREGATE_REFERENCE: Mapping[str, FunctionReference] = {
    "avg": FunctionReference("Mean of the values.", "double", ("avg(amount) > 100",), _IGNORES_NULL),
    "count": FunctionReference(
        "Number of events, or of values that are not NULL.",
        "long",
        ("count(*) >= 5", "count(amount) >= 5"),
        "never NULL",
    ),
    "count_distinct": FunctionReference(
        "Exact number of different values.", "long", ("count(distinct amount) >= 3",), "ignores NULL; never NULL"
    ),
    "max": FunctionReference("Largest value.", "the argument's type", ("max(amount) > 1000",), _IGNORES_NULL),
    "min": FunctionReference("Smallest value.", "the argument's type", ("min(amount) < 1",), _IGNORES_NULL),
    "stddev": FunctionReference(
        "Sample standard deviation.",
        "double",
        ("stddev(amount) > 50",),
        "ignores NULL; NULL with fewer than two values",
    ),
    "sum": FunctionReference(
        "Sum, exact for longs and decimals.", "the argument's type, widened", ("sum(amount) > 1000",), _IGNORES_NULL
    ),
}
