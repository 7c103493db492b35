"""The reference of the functions: summary, result type, NULL behaviour and examples of each.

``docs/reference/functions.md`` is generated from this table. A test evaluates every example with the reference
evaluator and with columns, and fails when a function has no entry. At run time it is for completion in editors alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_ANY_NULL = "NULL if any argument is NULL"
_NEVER = "never NULL"
_LOCAL_NULL = "NULL if the time is NULL, or outside of the years 1900 to 2099 in a zone other than UTC"
_COMPARED_NULL = "NULL if a text is NULL or has more than 1,000 characters"
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
        "Day of the week in UTC or the given zone, from 1 (Sunday) to 7 (Saturday).",
        "long",
        (
            "dayofweek(to_timestamp('2026-01-05T10:17:00Z')) = 2",
            "dayofweek(to_timestamp('2026-01-04T23:30:00Z'), 'Europe/Berlin') = 2",
        ),
        _LOCAL_NULL,
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
        "Hour of the day in UTC or the given zone, 0 to 23. A day of the zone in a list of holidays:"
        " ``date_format(t, 'yyyy-MM-dd', 'Europe/Berlin') in list holidays``.",
        "long",
        (
            "hour(to_timestamp('2026-01-05T10:17:00Z')) = 10",
            "hour(to_timestamp('2026-07-05T10:17:00Z'), 'Europe/Berlin') = 12",
        ),
        _LOCAL_NULL,
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
        "A text as a timestamp: ISO 8601 or the given [pattern](#patterns-of-times), and a zone for times without an"
        " offset (default UTC).",
        "timestamp",
        (
            "to_timestamp('05.01.2026', 'dd.MM.yyyy') = to_timestamp('2026-01-05T00:00:00Z')",
            "to_timestamp('05/Jan/2026:10:17:00 +0100', 'dd/MMM/yyyy:HH:mm:ss Z')"
            " = to_timestamp('2026-01-05T09:17:00Z')",
            "to_timestamp('01/31/2020 11:59:00 PM', 'MM/dd/yyyy hh:mm:ss a', 'America/New_York')"
            " = to_timestamp('2020-02-01T04:59:00Z')",
            "to_timestamp('2026-07-05 10:17 Europe/Berlin', 'yyyy-MM-dd HH:mm[:ss[.SSS]] VV')"
            " = to_timestamp('2026-07-05T08:17:00Z')",
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
    "base64": FunctionReference("The bytes of the text in UTF-8, as base64.", "text", ("base64('Ab 1') = 'QWIgMQ=='",)),
    "cast": FunctionReference(
        "The value as another type, as Spark converts it: a number to ``long`` is cut, to ``decimal`` rounded half away"
        " from zero; a time to ``long`` is its seconds; spaces around a text do not count. A value that does not"
        " convert is NULL, and in etl a dead letter.",
        "the type after ``as``",
        ("cast(' 17 ' as long) = 17", "cast('12.345' as decimal(10,2)) = 12.35", "cast('yes' as boolean)"),
        "NULL if the value is NULL or does not convert",
    ),
    "concat_ws": FunctionReference(
        "The texts that are not NULL, with a separator between them.",
        "text",
        ("concat_ws('-', 'a', nullif('b', 'b'), 'c') = 'a-c'",),
        "ignores NULL; never NULL",
    ),
    "date_format": FunctionReference(
        "A time as text in a [pattern](#patterns-of-times), in UTC or the given zone.",
        "text",
        (
            "date_format(to_timestamp('2026-01-05T22:17:00Z'), 'dd MMM yyyy, hh:mm a') = '05 Jan 2026, 10:17 PM'",
            "date_format(to_timestamp('2026-01-05T22:17:00Z'), 'HH:mmXXX', 'Europe/Berlin') = '23:17+01:00'",
            "date_format(to_timestamp('2026-07-05T22:17:00Z'), 'HH:mm zzz', 'Europe/Berlin') = '00:17 CEST'",
        ),
        "NULL if the time is NULL, or outside of the years 1 to 9999 (of a zone other than UTC: 1900 to 2099)",
    ),
    "day": FunctionReference("Day of the month in UTC.", "long", ("day(to_timestamp('2026-01-05T10:17:00Z')) = 5",)),
    "dayofyear": FunctionReference(
        "Day of the year in UTC, from 1.", "long", ("dayofyear(to_timestamp('2026-02-01T00:00:00Z')) = 32",)
    ),
    "from_json": FunctionReference(
        "A text of JSON as an array, a map or a struct, with the types of stream files. As in a record, no conversion"
        " is guessed: a text is no number, and ``1.0`` is not whole; a decimal may be a text, a time is ISO 8601 or"
        " milliseconds. A member that is missing is NULL, one that the type does not have is left out.",
        "the type in the second argument",
        (
            'from_json(\'{"sku": "a", "n": 2}\', \'struct<sku: string, n: long>\').n = 2',
            "cardinality(from_json('[{\"n\": 1}, {\"n\": 2}]', 'array<struct<n: long>>')) = 2",
            "from_json('{\"a\": 1.50}', 'map<string, decimal(9,2)>')['a'] = 1.5",
            "from_json('{\"n\": \"2\"}', 'struct<n: long>') is null",
        ),
        "NULL if the text is NULL, ``null`` or not JSON, or if a value in it is not of its type; in etl the last three"
        " are dead letters",
    ),
    "from_unixtime": FunctionReference(
        "Seconds since 1970 as text in UTC: ``yyyy-MM-dd HH:mm:ss``, or in the given [pattern](#patterns-of-times).",
        "text",
        ("from_unixtime(1767608220) = '2026-01-05 10:17:00'", "from_unixtime(0, 'yyyy') = '1970'"),
        "NULL if the number is NULL, or outside of the years 1 to 9999",
    ),
    "from_utc_timestamp": FunctionReference(
        "The local time of a zone, as a timestamp whose UTC parts are the local ones.",
        "timestamp",
        ("hour(from_utc_timestamp(to_timestamp('2026-07-05T10:00:00Z'), 'Europe/Berlin')) = 12",),
        "NULL if the time is NULL, or outside of the years 1900 to 2099 in a zone other than UTC",
    ),
    "get_json_object": FunctionReference(
        "The value at a path in a text of JSON, as text: a text without quotes, a number with its digits, an object or"
        " an array without spaces. Of members with one name, the last one.",
        "text",
        (
            "get_json_object('{\"a\": {\"b\": [1.50, \"x\"]}}', '$.a.b[0]') = '1.50'",
            "get_json_object('{\"a\": null}', '$.a') is null",
        ),
        "NULL if the text is NULL or not JSON, if nothing is at the path, or null",
    ),
    "hmac_sha256": FunctionReference(
        "HMAC-SHA256 of the text in UTF-8, as 64 hexadecimal digits. The key is in the file of a secret of the app's"
        " settings, which only etl has; no document, log or explanation contains it.",
        "text",
        (
            "hmac_sha256('1234', secret('example'))"
            " = '77829e170ef758b1ff9b2774fe6bb5ea81318e36fb19179c184a628e28d01af9'",
        ),
    ),
    "initcap": FunctionReference(
        "The first letter of each word in upper case, the others in lower case. Words end at a space.",
        "text",
        ("initcap('hEAD gate-2') = 'Head Gate-2'",),
    ),
    "instr": FunctionReference(
        "Position of the first occurrence of a part, from 1; 0 if there is none.",
        "long",
        ("instr('headgate', 'gate') = 5", "instr('headgate', 'x') = 0"),
    ),
    "ip_network": FunctionReference(
        "The network of an address: so many bits of IPv4, and so many (default 48) of IPv6.",
        "text",
        (
            "ip_network('203.0.113.77', 24) = '203.0.113.0/24'",
            "ip_network('2001:db8:1:2::3', 24, 32) = '2001:db8::/32'",
        ),
        "NULL if the text is NULL or no address",
    ),
    "left": FunctionReference("The first characters.", "text", ("left('headgate', 4) = 'head'",)),
    "lpad": FunctionReference(
        "The text with so many characters: spaces, or a pad, come before it; a longer text is cut.",
        "text",
        ("lpad('7', 3, '0') = '007'", "lpad('1234', 3) = '123'"),
    ),
    "ltrim": FunctionReference("The text without spaces at its start.", "text", ("ltrim('  a ') = 'a '",)),
    "md5": FunctionReference(
        "MD5 of the text in UTF-8, as 32 hexadecimal digits.",
        "text",
        ("md5('a') = '0cc175b9c0f1b6a831c399e269772661'",),
    ),
    "month": FunctionReference("Month in UTC, 1 to 12.", "long", ("month(to_timestamp('2026-01-05T10:17:00Z')) = 1",)),
    "parse_url": FunctionReference(
        "A part of a URL: HOST, PATH, QUERY, REF, PROTOCOL, FILE (path and query), AUTHORITY or USERINFO; or the value"
        " of a key of the query. Escapes stay: ``url_decode`` decodes them.",
        "text",
        (
            "parse_url('https://shop.example/a/b?id=7&x=1#top', 'HOST') = 'shop.example'",
            "parse_url('https://shop.example/a/b?id=7&x=1#top', 'QUERY', 'x') = '1'",
            "parse_url('https://shop.example/a', 'REF') is null",
        ),
        "NULL if the URL is NULL or none, or does not have the part",
    ),
    "quarter": FunctionReference(
        "Quarter in UTC, 1 to 4.", "long", ("quarter(to_timestamp('2026-05-05T10:17:00Z')) = 2",)
    ),
    "regexp_replace": FunctionReference(
        "The text with all matches of a pattern replaced. In the replacement ``$1`` is the text of a group, ``$0`` that"
        " of the match; a backslash takes the next character as it is.",
        "text",
        ("regexp_replace('a1b22', '[0-9]+', '#') = 'a#b#'", "regexp_replace('17-x', '([0-9]+)-(x)', '$2$1') = 'x17'"),
    ),
    "repeat": FunctionReference("The text so many times.", "text", ("repeat('ab', 3) = 'ababab'",)),
    "reverse": FunctionReference("The characters from the last to the first.", "text", ("reverse('abc') = 'cba'",)),
    "right": FunctionReference("The last characters.", "text", ("right('headgate', 4) = 'gate'",)),
    "rpad": FunctionReference(
        "The text with so many characters: spaces, or a pad, come behind it; a longer text is cut.",
        "text",
        ("rpad('a', 3, '.') = 'a..'",),
    ),
    "rtrim": FunctionReference("The text without spaces at its end.", "text", ("rtrim('  a ') = '  a'",)),
    "second": FunctionReference(
        "Second of the minute, 0 to 59.", "long", ("second(to_timestamp('2026-01-05T10:17:21Z')) = 21",)
    ),
    "sha1": FunctionReference(
        "SHA-1 of the text in UTF-8, as 40 hexadecimal digits.",
        "text",
        ("sha1('a') = '86f7e437faa5a7fce15d1ddcb9eaeaea377667b8'",),
    ),
    "sha2": FunctionReference(
        "SHA-2 of the text in UTF-8, of 224, 256, 384 or 512 bits; 0 is 256.",
        "text",
        ("sha2('a', 224) = 'abd37534c7d9a2efb9465de931cd7055ffdb8879563ae98078d6d6d5'",),
    ),
    "sha256": FunctionReference(
        "``sha2(text, 256)``.",
        "text",
        ("sha256('a') = 'ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'",),
    ),
    "split": FunctionReference(
        "The parts of a text between the matches of a pattern, empty ones too.",
        "array of text",
        ("split('a, b,,c', ',[ ]*')[1] = 'b'", "cardinality(split('a,b,', ',')) = 3"),
    ),
    "split_part": FunctionReference(
        "The part of a text with a number, between delimiters: 1 is the first, -1 the last. The empty text if there is"
        " no such part.",
        "text",
        ("split_part('a.b.c', '.', 2) = 'b'", "split_part('a.b.c', '.', -1) = 'c'", "split_part('a', '.', 2) = ''"),
    ),
    **{
        f"timestamp_{unit}": FunctionReference(
            f"The time of a number of {word} since 1970.",
            "timestamp",
            (f"timestamp_{unit}({number}) = to_timestamp('2026-01-05T10:17:00Z')",),
            "NULL if the number is NULL, or outside of the years 1 to 9999",
        )
        for unit, word, number in (
            ("seconds", "seconds", 1767608220),
            ("millis", "milliseconds", 1767608220000),
            ("micros", "microseconds (rounded down to milliseconds)", 1767608220000000),
        )
    },
    "to_json": FunctionReference(
        "An array, map or struct as JSON. Times are ISO 8601 texts, decimals have all their places, and of a struct"
        " members that are NULL are left out.",
        "text",
        ("to_json(array('a', 'b')) = '[\"a\",\"b\"]'", "to_json(map('n', 1.50)) = '{\"n\":1.50}'"),
    ),
    "try_cast": FunctionReference(
        "``cast``, and a value that does not convert is NULL in etl too.",
        "the type after ``as``",
        ("try_cast('x' as long) is null", "try_cast('2026-01-05' as timestamp) = to_timestamp('2026-01-05T00:00:00Z')"),
        "NULL if the value is NULL or does not convert",
    ),
    "unbase64": FunctionReference(
        "The text whose bytes in UTF-8 are encoded as base64.",
        "text",
        ("unbase64('QWIgMQ==') = 'Ab 1'", "unbase64('?') is null"),
        "NULL if the text is NULL, not base64, or its bytes are not UTF-8",
    ),
    **{
        f"unix_{unit}": FunctionReference(
            f"The {word} since 1970 of a time{more}.",
            "long",
            (f"unix_{unit}(to_timestamp('2026-01-05T10:17:00Z')) = {number}",),
        )
        for unit, word, more, number in (
            ("seconds", "seconds", ", rounded down", 1767608220),
            ("millis", "milliseconds", "", 1767608220000),
            ("micros", "microseconds", "", 1767608220000000),
        )
    },
    "url_decode": FunctionReference(
        "The text of a part of a URL: ``%`` and two digits are a byte in UTF-8, ``+`` is a space.",
        "text",
        ("url_decode('a%20b%C3%A9+c') = 'a bé c'", "url_decode('100%') is null"),
        "NULL if the text is NULL, or has an incomplete escape or bytes that are not UTF-8",
    ),
    "url_encode": FunctionReference(
        "The text as a part of a URL, as forms encode it: letters, digits and ``.-*_`` stay, a space is ``+``.",
        "text",
        ("url_encode('a b/é') = 'a+b%2F%C3%A9'",),
    ),
    "user_agent_class": FunctionReference(
        "The class of a user agent: bot, tool, tablet, mobile, desktop or other.",
        "text",
        ("user_agent_class('curl/8.5.0') = 'tool'", "user_agent_class('Mozilla/5.0 (X11; Linux x86_64)') = 'desktop'"),
    ),
    "weekofyear": FunctionReference(
        "Week of the year by ISO 8601, 1 to 53.", "long", ("weekofyear(to_timestamp('2026-01-05T10:17:00Z')) = 2",)
    ),
    "year": FunctionReference("Year in UTC.", "long", ("year(to_timestamp('2026-01-05T10:17:00Z')) = 2026",)),
    "distance_km": FunctionReference(
        "Kilometres between two places on a sphere with the mean radius of the Earth (6,371.0088 km). The arguments are"
        " degrees.",
        "double",
        ("round(distance_km(52.52, 13.405, 48.8566, 2.3522)) = 877.0", "distance_km(91, 0, 0, 0) is null"),
        "NULL if an argument is NULL, a latitude is beyond 90 degrees or a longitude beyond 180",
    ),
    "speed_kmh": FunctionReference(
        "Speed in km/h that the way between two places and times takes: latitude, longitude and time of each.",
        "double",
        (
            "round(speed_kmh(52.52, 13.405, to_timestamp('2026-01-05T10:00:00Z'),"
            " 40.7128, -74.006, to_timestamp('2026-01-05T11:00:00Z'))) = 6385.0",
        ),
        "NULL if an argument is NULL, both times are equal, or there is no such place",
    ),
    "levenshtein": FunctionReference(
        "Number of characters to insert, remove or replace to make one text the other.",
        "long",
        ("levenshtein('kitten', 'sitting') = 3", "levenshtein('', 'ab') = 2"),
        _COMPARED_NULL,
    ),
    "jaro_winkler_similarity": FunctionReference(
        "Similarity of two texts by Jaro and Winkler, from 0 to 1. A common start counts above 0.7 only.",
        "double",
        ("round(jaro_winkler_similarity('martha', 'marhta'), 4) = 0.9611", "jaro_winkler_similarity('a', 'b') = 0.0"),
        _COMPARED_NULL,
    ),
    "normalize_name": FunctionReference(
        "A name without accents, case and punctuation, with one space between words.",
        "text",
        ("normalize_name('  M\u00fcller-L\u00dcDENSCHEIDT,  J.') = 'muller ludenscheidt j'",),
    ),
    "normalize_email": FunctionReference(
        "The address in lower case without its tag (``+shop``), for Gmail also without dots.",
        "text",
        (
            "normalize_email('Jo.Doe+shop@GoogleMail.com') = 'jodoe@gmail.com'",
            "normalize_email('A.B+c@example.org') = 'a.b@example.org'",
            "normalize_email('no address') is null",
        ),
        "NULL if the text is NULL or no address",
    ),
    "luhn_check": FunctionReference(
        "Whether a text is digits with a right check digit by Luhn, such as the number of a card.",
        "boolean",
        ("luhn_check('4111111111111111')", "not luhn_check('4111111111111112')", "not luhn_check('4111 1111')"),
    ),
    "percent_change": FunctionReference(
        "Change from the first number to the second in percent of the first one's size.",
        "double",
        ("percent_change(80, 100) = 25.0", "percent_change(0, 1) is null"),
        "NULL if a number is NULL or the first one is zero",
    ),
    "z_score": FunctionReference(
        "How many standard deviations a value is above the mean.",
        "double",
        ("z_score(130, 100, 15) = 2.0", "z_score(1, 1, 0) is null"),
        "NULL if a number is NULL or the deviation is zero",
    ),
    "entropy": FunctionReference(
        "Bits of information of a character (Shannon): 0 for one repeated character, about 4 for random letters.",
        "double",
        ("entropy('aabb') = 1.0", "entropy('aaaa') = 0.0"),
    ),
    "domain_suffix": FunctionReference(
        "The last labels of a host name, in lower case. With the public suffix list as a list ``suffixes``, the"
        " registered domain is ``case when domain_suffix(host, 2) in list suffixes then domain_suffix(host, 3) else"
        " domain_suffix(host, 2) end``.",
        "text",
        ("domain_suffix('www.Example.co.uk', 3) = 'example.co.uk'", "domain_suffix('10.0.0.1', 2) is null"),
        "NULL if the host is NULL, an address, or has fewer labels",
    ),
    "weekday": FunctionReference(
        "Day of the week in UTC or the given zone, from 0 (Monday) to 6 (Sunday).",
        "long",
        ("weekday(to_timestamp('2026-01-05T10:17:00Z')) = 0",),
        _LOCAL_NULL,
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
        "Number of events, or of values that are not NULL. ``count_if(condition)`` is the number of events for which "
        "the condition is TRUE; other than in a session, ``count`` takes no condition.",
        "long",
        ("count(*) >= 5", "count(amount) >= 5", "count_if(amount > 100) >= 5"),
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
        "Sum, exact for longs and decimals. In a sequence NULL outside of its type; in windows and features one beyond "
        "2^63 wraps (decimals: in units of their last digit), so convert such longs to `double`.",
        "the argument's type, widened",
        ("sum(amount) > 1000",),
        _IGNORES_NULL,
    ),
}

#: Of the aggregates that only a session has (``functions.SESSION_AGGREGATES``).
SESSION_AGGREGATE_REFERENCE: Mapping[str, FunctionReference] = {
    "approx_count_distinct": FunctionReference(
        "Number of different values by HyperLogLog: standard error 1.6 %, bounded memory.",
        "long",
        ("approx_count_distinct(amount) >= 1000",),
        "ignores NULL; never NULL",
    ),
    "first": FunctionReference(
        "Value of the earliest event by event time; of events at the same time, the least.",
        "the argument's type, which is no double",
        ("first(amount) > 100",),
        _IGNORES_NULL,
    ),
    "last": FunctionReference(
        "Value of the latest event by event time; of events at the same time, the greatest.",
        "the argument's type, which is no double",
        ("last(amount) > first(amount)",),
        _IGNORES_NULL,
    ),
}

#: Of the aggregates that only a feature has (``functions.FEATURE_AGGREGATES``).
FEATURE_AGGREGATE_REFERENCE: Mapping[str, FunctionReference] = {
    "first": FunctionReference(
        "Value of the earliest event that has one, by event time; of events at the same time, of the one that arrived "
        "first.",
        "the argument's type",
        ("first(amount)",),
        "ignores NULL; NULL without such an event",
    ),
    "last": FunctionReference(
        "Value of the latest event that has one, by event time; of events at the same time, of the one that arrived "
        "last. So it is that of the event before; `previous` is another name of it.",
        "the argument's type",
        ("last(amount)", "previous(amount)"),
        "ignores NULL; NULL without such an event",
    ),
    "seen": FunctionReference(
        "Whether an earlier event had the value that this event has: SQL's `x in (select distinct x ...)`.",
        "boolean",
        ("seen(amount)",),
        "NULL if this event has no value",
    ),
    "time_decayed_count": FunctionReference(
        "Number of earlier events, of which each counts half with every half-life that it lies back: "
        "`0.5 ^ (age / half-life)`. If one is later than this event, because it arrived out of order, ages are those "
        "at its time: none counts more than 1.",
        "double",
        ("time_decayed_count(interval 7 days)",),
        "never NULL",
    ),
    "time_decayed_sum": FunctionReference(
        "Sum of the values of earlier events, each times `0.5 ^ (age / half-life)`. If one is later than this event, "
        "ages are those at its time. ClickHouse: "
        "`exponentialTimeDecayedSum`, whose parameter is the half-life divided by `ln(2)`.",
        "double",
        ("time_decayed_sum(amount, interval 7 days)",),
        _IGNORES_NULL,
    ),
    "time_since_last": FunctionReference(
        "Milliseconds from the latest earlier event to this one; below 0 if this one comes late.",
        "long",
        ("time_since_last()",),
        "NULL without an earlier event",
    ),
}
