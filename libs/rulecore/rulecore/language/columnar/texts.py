"""The functions of URLs, digests, JSON, addresses and padded texts as Polars formulas.

What Polars has no formula for is computed by Python, once for each distinct text of a column (``by_value``).
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import ipaddress
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus, unquote_to_bytes

import polars as pl

from rulecore.language.ast import Call, Literal, SecretRef
from rulecore.language.columnar.operators import ComputedOperand, let
from rulecore.language.json_texts import MAX_JSON_DEPTH, find_in_json
from rulecore.language.physical import to_logical
from rulecore.language.secrets import find_key
from rulecore.language.text_signatures import parse_json_path, parse_replacement
from rulecore.language.user_agents import AGENT_CLASSES, OTHER_AGENT
from streamcore.columnar.polars_types import polars_type
from streamcore.decode.scalar import Physical, RecordError, convert, parse_json
from streamcore.schema import Field, Kind, Type
from streamcore.timestamps import load_zone

Operands = list[ComputedOperand]
Formula = Callable[[Call, Operands], pl.Expr]
#: RFC 3986, with the characters that it allows, and those above ASCII.
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^\x00-\x20\x7f\"<>\\^`{|}/?#@:\[\]]*)"
_ANY = r"[^\x00-\x20\x7f\"<>\\^`{|}#?\[\]]"
_URL = (
    rf"\A([A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>(?:(?P<user>[^\x00-\x20\x7f\"<>\\^`{{|}}/?#@\[\]]*)@)?"
    rf"(?P<host>{_HOST})(?::[0-9]*)?)(?P<path>(?:/{_ANY}*)?)|(?P<bare>/?{_ANY}+))"
    rf"(?:\?(?P<query>[^\x00-\x20\x7f\"<>\\^`{{|}}#]*))?(?:\#(?P<ref>[^\x00-\x20\x7f\"<>\\^`{{|}}#]*))?\z"
)


def by_value(text: pl.Expr, function: Callable[[str], str | None]) -> pl.Expr:
    """Apply a function of one text to each distinct text; NULL stays NULL."""

    def apply(column: pl.Series) -> pl.Series:
        values = column.drop_nulls().unique()
        found = pl.Series([function(value) for value in values.to_list()], dtype=pl.String)
        if not len(values):
            return pl.Series(column.name, [None], dtype=pl.String).new_from_index(0, len(column))
        return column.replace_strict(values, found, default=None, return_dtype=pl.String)

    return text.map_batches(apply, return_dtype=pl.String, is_elementwise=True)


def _on_values(function: Callable[[str], str | None]) -> Formula:
    return lambda _, operands: by_value(operands[0].expr, function)


def _constant(expr: Call, index: int, default: object = None) -> Any:
    if index >= len(expr.arguments):
        return default
    argument = expr.arguments[index]
    assert isinstance(argument, Literal)
    return argument.value


def _regexp_replace(expr: Call, operands: Operands) -> pl.Expr:
    parts = parse_replacement(_constant(expr, 2))
    rust = "".join(f"${{{part}}}" if isinstance(part, int) else part.replace("$", "$$") for part in parts)
    return operands[0].expr.str.replace_all(_constant(expr, 1), rust)


def _split_part(expr: Call, operands: Operands) -> pl.Expr:
    """Compile the part of a number, from 1, or from -1 at the end; the empty text if there is none."""
    number = _constant(expr, 2)
    parts = operands[0].expr.str.split(_constant(expr, 1))
    place = number - (number > 0)

    def formula(found: pl.Expr) -> pl.Expr:
        return pl.when(found.is_not_null()).then(found.list.get(place, null_on_oob=True).fill_null(""))

    return let([ComputedOperand(parts, expr.type)], formula)


def _pad(expr: Call, operands: Operands) -> pl.Expr:
    """Compile ``lpad`` or ``rpad``: the pad is repeated, and a longer text is cut."""
    length, pad = _constant(expr, 1), _constant(expr, 2, " ")
    full = (pad * (length // len(pad) + 1))[:length]

    def formula(text: pl.Expr) -> pl.Expr:
        missing = length - text.str.len_chars().cast(pl.Int64)
        fill = pl.lit(full).str.slice(0, missing.clip(0))
        padded = pl.concat_str([fill, text] if expr.function == "lpad" else [text, fill])
        return pl.when(missing > 0).then(padded).otherwise(text.str.head(length))

    return let(operands[:1], formula)


def _instr(_expr: Call, operands: Operands) -> pl.Expr:
    """Compile the position of a part in characters: the length of what is before it, and 1."""

    def formula(text: pl.Expr, part: pl.Expr) -> pl.Expr:
        before = text.str.split(part).list.first().str.len_chars().cast(pl.Int64) + 1
        found = pl.when(part == "").then(1).when(text.str.contains(part, literal=True)).then(before).otherwise(0)
        return pl.when(text.is_not_null() & part.is_not_null()).then(found).cast(pl.Int64)

    return let(operands, formula)


def _initcap(_expr: Call, operands: Operands) -> pl.Expr:
    word = pl.element()
    capital = word.str.head(1).str.to_uppercase() + word.str.slice(1)
    return operands[0].expr.str.to_lowercase().str.split(" ").list.eval(capital).list.join(" ")


def _sha2(expr: Call, operands: Operands) -> pl.Expr:
    name = f"sha{_constant(expr, 1) or 256}"
    return by_value(operands[0].expr, lambda text: hashlib.new(name, text.encode()).hexdigest())


def _hmac(expr: Call, operands: Operands) -> pl.Expr:
    secret = expr.arguments[1]
    assert isinstance(secret, SecretRef)
    file = secret.file
    return by_value(operands[0].expr, lambda text: hmac.new(find_key(file), text.encode(), hashlib.sha256).hexdigest())


def _url_decode(text: str) -> str | None:
    """Return the text of ``application/x-www-form-urlencoded``; None if an escape or its UTF-8 is broken."""
    if any(len(part) < 2 or not all(c in "0123456789abcdefABCDEF" for c in part[:2]) for part in text.split("%")[1:]):
        return None
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeDecodeError:
        return None


def _url_encode(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def _unbase64(text: str) -> str | None:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _parse_url(expr: Call, operands: Operands) -> pl.Expr:
    part, key = _constant(expr, 1), _constant(expr, 2)

    def formula(url: pl.Expr) -> pl.Expr:
        fields = {name: pl.field(name) for name in ("authority", "user", "host", "path", "bare", "query", "ref")}
        is_opaque = ~fields["bare"].str.starts_with("/").fill_null(value=True)  # such as mailto:a@b.org
        path = pl.when(~is_opaque).then(pl.coalesce(fields["path"], fields["bare"]))
        query = pl.when(~is_opaque).then(fields["query"])
        found = {
            "PROTOCOL": pl.field("1"),
            "HOST": pl.when(fields["host"] != "").then(fields["host"]),
            "AUTHORITY": pl.when(fields["authority"] != "").then(fields["authority"]),
            "USERINFO": fields["user"],
            "PATH": path,
            "QUERY": query,
            "REF": fields["ref"],
            "FILE": pl.when(query.is_null()).then(path).otherwise(pl.concat_str([path, pl.lit("?"), query])),
        }[part]
        if key is not None:
            found = query.str.extract(rf"(?:\A|&){pl.escape_regex(key)}=([^&]*)")
        return url.str.extract_groups(_URL).struct.with_fields(found.alias("found")).struct.field("found")

    return let(operands[:1], formula)


def _agent_class(_expr: Call, operands: Operands) -> pl.Expr:
    def formula(agent: pl.Expr) -> pl.Expr:
        found = pl.lit(OTHER_AGENT)
        for name, pattern in reversed(AGENT_CLASSES):
            found = pl.when(agent.str.contains(pattern)).then(pl.lit(name)).otherwise(found)
        return pl.when(agent.is_not_null()).then(found)

    return let([ComputedOperand(operands[0].expr.str.to_lowercase(), operands[0].type)], formula)


def _ip_network(expr: Call, operands: Operands) -> pl.Expr:
    bits = (_constant(expr, 1), _constant(expr, 2, 48))

    def network(text: str) -> str | None:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        if "%" in text:
            return None
        return str(ipaddress.ip_network((int(address) if address.version == 4 else address.packed,
                                         bits[address.version == 6]), strict=False))  # fmt: skip

    return by_value(operands[0].expr, network)


def _to_json(expr: Call, operands: Operands) -> pl.Expr:
    kind = expr.arguments[0].type

    def write(column: pl.Series) -> pl.Series:
        texts = [None if value is None else to_json_text(to_logical(value, kind), kind) for value in column.to_list()]
        return pl.Series(column.name, texts, dtype=pl.String)

    return operands[0].expr.map_batches(write, return_dtype=pl.String, is_elementwise=True)


def to_json_text(value: Any, kind: Type) -> str:
    """Return a value as JSON: decimals with their places, times as ISO 8601. Of structs, NULL members are left out."""
    if value is None:
        return "null"
    match kind.kind:
        case Kind.ARRAY:
            return f"[{','.join(to_json_text(item, kind.items) for item in value)}]"
        case Kind.MAP:
            members = (f"{_quote(key)}:{to_json_text(item, kind.items)}" for key, item in value.items())
            return "{" + ",".join(members) + "}"
        case Kind.STRUCT:
            pairs = ((name, value.get(name), member) for name, member in kind.members)
            shown = (f"{_quote(name)}:{to_json_text(item, member)}" for name, item, member in pairs if item is not None)
            return "{" + ",".join(shown) + "}"
        case Kind.TIMESTAMP:
            return _time(value)
        case Kind.DECIMAL:
            return format(Decimal(value), f".{kind.scale}f")
        case Kind.BOOLEAN:
            return "true" if value else "false"
    return _quote(value) if isinstance(value, str) else str(value)


def _time(ms: int) -> str:
    try:
        moment = datetime(1970, 1, 1) + timedelta(milliseconds=ms)
    except OverflowError:
        return "null"
    return f'"{moment.isoformat(timespec="milliseconds")}Z"'


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _get_json_object(expr: Call, operands: Operands) -> pl.Expr:
    path = parse_json_path(_constant(expr, 1))
    return by_value(operands[0].expr, functools.partial(find_in_json, path))


def _from_json(expr: Call, operands: Operands) -> pl.Expr:
    field, zone, kind = Field("json", expr.type), load_zone("UTC"), polars_type(expr.type)

    def read(text: str) -> Physical:
        try:
            return convert(field, parse_json(text, MAX_JSON_DEPTH), zone)
        except RecordError:
            return None

    def apply(column: pl.Series) -> pl.Series:
        values = column.drop_nulls().unique()
        found = {text: read(text) for text in values.to_list()}
        return pl.Series(column.name, [None if text is None else found[text] for text in column.to_list()], dtype=kind)

    return operands[0].expr.map_batches(apply, return_dtype=kind, is_elementwise=True)


TEXT_CALLS: Mapping[str, Formula] = {
    "regexp_replace": _regexp_replace,
    "split": lambda e, o: o[0].expr.str.split(_constant(e, 1), literal=False),
    "split_part": _split_part,
    "concat_ws": lambda e, o: pl.concat_str([one.expr for one in o[1:]], separator=_constant(e, 0), ignore_nulls=True),
    "lpad": _pad,
    "rpad": _pad,
    "ltrim": lambda _, o: o[0].expr.str.strip_chars_start(" "),
    "rtrim": lambda _, o: o[0].expr.str.strip_chars_end(" "),
    "left": lambda e, o: o[0].expr.str.head(_constant(e, 1)),
    "right": lambda e, o: o[0].expr.str.tail(_constant(e, 1)),
    "repeat": lambda e, o: let(o[:1], lambda text: pl.concat_str([text.str.head(0), *[text] * _constant(e, 1)])),
    "instr": _instr,
    "initcap": _initcap,
    "reverse": _on_values(lambda text: text[::-1]),
    "url_encode": _on_values(_url_encode),
    "url_decode": _on_values(_url_decode),
    "parse_url": _parse_url,
    "base64": _on_values(lambda text: base64.b64encode(text.encode()).decode()),
    "unbase64": _on_values(_unbase64),
    "md5": _on_values(lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()),
    "sha1": _on_values(lambda text: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()),
    "sha2": _sha2,
    "sha256": _on_values(lambda text: hashlib.sha256(text.encode()).hexdigest()),
    "hmac_sha256": _hmac,
    "get_json_object": _get_json_object,
    "from_json": _from_json,
    "to_json": _to_json,
    "user_agent_class": _agent_class,
    "ip_network": _ip_network,
}
