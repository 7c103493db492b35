"""Distances, similarities, normal forms and check digits as Polars formulas.

Numbers are computed by column. Texts are computed by Python, once for each distinct text or pair of a column.
"""

from __future__ import annotations

import ipaddress
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from rulecore.language.ast import Call, Literal
from rulecore.language.columnar.operators import ComputedOperand, let_columns
from rulecore.language.text_signatures import EARTH_RADIUS_KM, MAX_COMPARED

Operands = list[ComputedOperand]
_HOUR_MS = 3_600_000


def by_rows(columns: Sequence[pl.Expr], function: Callable[..., Any], kind: type[pl.DataType]) -> pl.Expr:
    """Apply a function to each distinct row of some columns; NULL if one of them is."""

    def apply(rows: pl.Series) -> pl.Series:
        known: dict[tuple[Any, ...], Any] = {}
        values = list(zip(*(column.to_list() for column in rows.struct.unnest()), strict=True))
        for row in values:
            if row not in known:
                known[row] = None if None in row else function(*row)
        return pl.Series(rows.name, [known[row] for row in values], dtype=kind)

    packed = pl.struct([column.alias(f"_{i}") for i, column in enumerate(columns)])
    return packed.map_batches(apply, return_dtype=kind, is_elementwise=True)


def _of_texts(function: Callable[..., Any], kind: type[pl.DataType]) -> Callable[[Call, Operands], pl.Expr]:
    return lambda _, operands: by_rows([one.expr for one in operands], function, kind)


def _haversine(latitude: pl.Expr, longitude: pl.Expr, latitude2: pl.Expr, longitude2: pl.Expr) -> pl.Expr:
    """Return the kilometres between two places by the haversine formula; NULL for degrees that no place has."""
    known = pl.all_horizontal(
        latitude.is_between(-90, 90),
        latitude2.is_between(-90, 90),
        longitude.is_between(-180, 180),
        longitude2.is_between(-180, 180),
    )
    phi, phi2 = latitude.radians(), latitude2.radians()
    up, along = (phi2 - phi) / 2, (longitude2 - longitude).radians() / 2
    part = up.sin() * up.sin() + phi.cos() * phi2.cos() * along.sin() * along.sin()
    angle = 2 * part.clip(0, 1).sqrt().arcsin()
    return pl.when(known).then(angle * EARTH_RADIUS_KM)


def _distance_km(_expr: Call, operands: Operands) -> pl.Expr:
    return let_columns([one.to_double() for one in operands], _haversine)


def _speed_kmh(_expr: Call, operands: Operands) -> pl.Expr:
    def formula(*values: pl.Expr) -> pl.Expr:
        latitude, longitude, time, latitude2, longitude2, time2 = values
        hours = (time2 - time).abs() / _HOUR_MS
        return pl.when(hours > 0).then(_haversine(latitude, longitude, latitude2, longitude2) / hours)

    return let_columns([one.expr if i in (2, 5) else one.to_double() for i, one in enumerate(operands)], formula)


def levenshtein(left: str, right: str) -> int | None:
    """Return the edit distance, a column of the matrix at once in the bits of a number (Myers 1999, Hyyro 2003)."""
    if max(len(left), len(right)) > MAX_COMPARED:
        return None
    if not left:
        return len(right)
    places: dict[str, int] = {}
    for i, char in enumerate(left):
        places[char] = places.get(char, 0) | 1 << i
    every, last = (1 << len(left)) - 1, 1 << (len(left) - 1)
    plus, minus, distance = every, 0, len(left)
    for char in right:
        equal = places.get(char, 0)
        across = (((equal & plus) + plus) ^ plus) | equal | minus
        up, down = minus | ~(across | plus) & every, plus & across
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & every, down << 1 & every
        plus, minus = down | ~(across | up) & every, up & across
    return distance


def jaro_winkler(left: str, right: str) -> float | None:
    """Return the similarity of Jaro and Winkler, with the matched characters as bits."""
    if max(len(left), len(right)) > MAX_COMPARED:
        return None
    if left == right:
        return 1.0
    reach = max(0, max(len(left), len(right)) // 2 - 1)
    free: dict[str, int] = {}
    for j, char in enumerate(right):
        free[char] = free.get(char, 0) | 1 << j
    used, order = 0, []
    for i, char in enumerate(left):
        window = (1 << (i + reach + 1)) - 1 >> max(0, i - reach) << max(0, i - reach)
        near = free.get(char, 0) & window
        if near:
            first = near & -near
            free[char] ^= first
            used |= first
            order.append(char)
    matched = len(order)
    if not matched:
        return 0.0
    others = [right[j] for j in range(len(right)) if used >> j & 1]
    moved = sum(map(str.__ne__, order, others)) // 2
    jaro = (matched / len(left) + matched / len(right) + (matched - moved) / matched) / 3
    same = next((i for i, (a, b) in enumerate(zip(left[:4], right[:4], strict=False)) if a != b), None)
    start = min(4, len(left), len(right)) if same is None else same
    return jaro + start * 0.1 * (1 - jaro) if jaro > 0.7 else jaro


_MARKS = re.compile(r"[\W_]+")
_ADDRESS = re.compile(r"([^\s@+]+)(?:\+[^\s@]*)?@([^\s@]+)")


def normalize_name(text: str) -> str:
    """Return a name without marks, case and punctuation, with one space between its words."""
    for fold in (str, str.casefold):
        text = "".join(c for c in unicodedata.normalize("NFKD", fold(text)) if not unicodedata.combining(c))
    return _MARKS.sub(" ", text).strip()


def normalize_email(text: str) -> str | None:
    """Return the address that mail for this one reaches, without a tag; None if the text is no address."""
    match = _ADDRESS.fullmatch(text.strip(" ").lower())
    if match is None:
        return None
    if match[2] in ("gmail.com", "googlemail.com"):
        name = match[1].replace(".", "")
        return f"{name}@gmail.com" if name else None
    return f"{match[1]}@{match[2]}"


_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


def luhn(text: str) -> bool:
    """Return whether a text is digits whose last one is right by the formula of Luhn (ISO/IEC 7812-1)."""
    if not text.isascii() or not text.isdigit():
        return False
    digits = [int(char) for char in text[::-1]]
    return (sum(digits[::2]) + sum(_DOUBLED[digit] for digit in digits[1::2])) % 10 == 0


def entropy(text: str) -> float:
    """Return the bits of information of a character (Shannon 1948); 0 for an empty text."""
    if not text:
        return 0.0
    counts = sorted(Counter(text).values())
    return max(0.0, math.log2(len(text)) - sum(count * math.log2(count) for count in counts) / len(text))


def _percent_change(_expr: Call, operands: Operands) -> pl.Expr:
    def formula(old: pl.Expr, new: pl.Expr) -> pl.Expr:
        return pl.when(old != 0).then((new - old) / old.abs() * 100)

    return let_columns([one.to_double() for one in operands], formula)


def _z_score(_expr: Call, operands: Operands) -> pl.Expr:
    def formula(value: pl.Expr, mean: pl.Expr, deviation: pl.Expr) -> pl.Expr:
        return pl.when(deviation != 0).then((value - mean) / deviation)

    return let_columns([one.to_double() for one in operands], formula)


def _domain_suffix(expr: Call, operands: Operands) -> pl.Expr:
    labels = expr.arguments[1]
    assert isinstance(labels, Literal)
    assert isinstance(labels.value, int)
    wanted = re.compile(rf"(?:[^.]+\.)*?([^.]+(?:\.[^.]+){{{labels.value - 1}}})\.?")

    def suffix(host: str) -> str | None:
        match = wanted.fullmatch(host.lower())
        return None if match is None or _is_address(host.removesuffix(".").strip("[]")) else match[1]

    return by_rows([operands[0].expr], suffix, pl.String)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


MEASURES: Mapping[str, Callable[[Call, Operands], pl.Expr]] = {
    "distance_km": _distance_km,
    "speed_kmh": _speed_kmh,
    "levenshtein": _of_texts(levenshtein, pl.Int64),
    "jaro_winkler_similarity": _of_texts(jaro_winkler, pl.Float64),
    "normalize_name": _of_texts(normalize_name, pl.String),
    "normalize_email": _of_texts(normalize_email, pl.String),
    "luhn_check": _of_texts(luhn, pl.Boolean),
    "percent_change": _percent_change,
    "z_score": _z_score,
    "entropy": _of_texts(entropy, pl.Float64),
    "domain_suffix": _domain_suffix,
}
