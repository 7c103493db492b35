"""The functions of texts, casts and digests for the reference evaluator, in plain Python."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any

from rulecore.language.ast import Call
from rulecore.language.json_texts import find_in_json, is_deep
from rulecore.language.reference.values import WIDE, coerce_number, double, text_of_time
from rulecore.language.secrets import find_key
from rulecore.language.text_signatures import parse_json_path
from rulecore.language.types import Value
from rulecore.language.user_agents import AGENT_CLASSES, OTHER_AGENT
from streamcore.schema import BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Kind, Type
from streamcore.timestamps import from_iso, load_zone


def _split_part(_expr: Call, text: str, delimiter: str, number: int) -> str:
    parts = text.split(delimiter)
    return parts[number - (number > 0)] if abs(number) <= len(parts) else ""


def _pad(expr: Call, text: str, length: int, pad: str = " ") -> str:
    fill = (pad * length)[: max(0, length - len(text))]
    return (fill + text if expr.function == "lpad" else text + fill)[:length]


def _concat_ws(_expr: Call, values: list[Any]) -> str:
    separator, *texts = values
    return str(separator).join(text for text in texts if text is not None)


def _initcap(_expr: Call, text: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in text.lower().split(" "))


_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-*_")


def _url_encode(_expr: Call, text: str) -> str:
    return "".join("+" if b == 32 else chr(b) if b in _PLAIN else f"%{b:02X}" for b in text.encode())


def _url_decode(_expr: Call, text: str) -> Value:
    found, at = bytearray(), 0
    raw = text.encode()
    while at < len(raw):
        if raw[at] != ord("%"):
            found.append(32 if raw[at] == ord("+") else raw[at])
            at += 1
        elif re.fullmatch(rb"[0-9a-fA-F]{2}", digits := raw[at + 1 : at + 3]):
            found.append(int(digits, 16))
            at += 3
        else:
            return None
    try:
        return found.decode()
    except UnicodeDecodeError:
        return None


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_NOWHERE = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}]")


def _parse_url(_expr: Call, url: str, part: str, key: str | None = None) -> Value:
    match = _URL.fullmatch(url)
    if match is None or _NOWHERE.search(url):
        return None
    protocol, authority, path, query, ref = match.groups()
    if re.search(r"[\[\]]", path) or "#" in (ref or "") or (authority is None and (not path or path[:2] == "//")):
        return None
    if authority is None and path[:1] != "/":  # such as mailto:a@b.org
        return {"PROTOCOL": protocol, "REF": ref}.get(part)
    user, at, server = (authority or "").rpartition("@")
    place = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@]*)(?::[0-9]*)?", server)
    if place is None or re.search(r"[@\[\]]", user):
        return None
    if key is not None:
        return next((one[len(key) + 1 :] for one in (query or "").split("&") if one.startswith(f"{key}=")), None)
    return {
        "PROTOCOL": protocol,
        "HOST": place[1] or None,
        "AUTHORITY": authority or None,
        "USERINFO": user if at else None,
        "PATH": path,
        "QUERY": query,
        "REF": ref,
        "FILE": path if query is None else f"{path}?{query}",
    }[part]


def _unbase64(_expr: Call, text: str) -> Value:
    packed = re.sub(r"\s", "", text)
    if len(packed) % 4 or not re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", packed):
        return None
    try:
        return base64.b64decode(packed).decode()
    except ValueError:
        return None


def _digest(name: str, text: str) -> str:
    return hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()


def _agent_class(_expr: Call, text: str) -> str:
    agent = text.lower()
    return next((name for name, pattern in AGENT_CLASSES if re.search(pattern, agent)), OTHER_AGENT)


def _ip_network(_expr: Call, text: str, bits: int, bits_of_v6: int = 48) -> Value:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if "%" in text:
        return None
    kept = bits if address.version == 4 else bits_of_v6
    masked = int(address) >> (address.max_prefixlen - kept) << (address.max_prefixlen - kept)
    return f"{type(address)(masked)}/{kept}"


def _to_json(expr: Call, value: Any) -> str:
    def plain(item: Any, kind: Type) -> Any:
        match kind.kind:
            case Kind.ARRAY if item is not None:
                return [plain(one, kind.items) for one in item]
            case Kind.MAP if item is not None:
                return {key: plain(one, kind.items) for key, one in item.items()}
            case Kind.STRUCT if item is not None:
                return {n: plain(item.get(n), member) for n, member in kind.members if item.get(n) is not None}
        if kind == TIMESTAMP and item is not None:
            return text_of_time(item)
        return f"\ue000{item:.{kind.scale}f}\ue001" if isinstance(item, Decimal) else item

    text = json.dumps(plain(value, expr.arguments[0].type), ensure_ascii=False, separators=(",", ":"))
    return re.sub('"\ue000([^\ue001]*)\ue001"', r"\1", text)


class _Digits(str):
    """A number of JSON as it is written."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """The members of an object."""


def _from_json(expr: Call, text: str, _type: str) -> Value:
    def no_number(_: str) -> None:
        raise ValueError

    if is_deep(text):
        return None
    try:
        value = json.loads(
            text, object_pairs_hook=_Pairs, parse_int=_Digits, parse_float=_Digits, parse_constant=no_number
        )
        if _has_surrogates(value):
            return None
        return _of_json(value, expr.type)  # type: ignore[no-any-return]
    except ValueError:
        return None


def _has_surrogates(value: Any) -> bool:
    """Return whether a text or a name in it has half of a surrogate pair, which no UTF-8 has."""
    if isinstance(value, str):
        return any("\ud800" <= character <= "\udfff" for character in value)
    return isinstance(value, list | tuple) and any(map(_has_surrogates, value))


def _of_json(value: Any, kind: Type) -> Any:  # noqa: PLR0912 - one case per type
    """Return the logical value; ``ValueError`` for one that is not of the type as it is written."""
    if value is None:
        return None
    is_text = isinstance(value, str) and not isinstance(value, _Digits)
    match kind.kind:
        case Kind.ARRAY if isinstance(value, list) and not isinstance(value, _Pairs):
            return [_of_json(one, kind.items) for one in value]
        case Kind.MAP if isinstance(value, _Pairs) and len(dict(value)) == len(value):
            return {name: _of_json(one, kind.items) for name, one in value}
        case Kind.STRUCT if isinstance(value, _Pairs):
            names = [name for name, _ in kind.members]
            given = [pair for pair in value if pair[0] in names]
            if len(dict(given)) == len(given):
                return {name: _of_json(dict(given).get(name), member) for name, member in kind.members}
        case Kind.STRING if is_text:
            return value
        case Kind.BOOLEAN if isinstance(value, bool):
            return value
        case Kind.LONG if isinstance(value, _Digits) and re.fullmatch("-?[0-9]{1,19}", value):
            if -(2**63) <= int(value) < 2**63:
                return int(value)
        case Kind.DOUBLE if isinstance(value, _Digits):
            if math.isfinite(float(value)):
                return float(value)
        case Kind.DECIMAL if isinstance(value, str) and _JSON_NUMBER.fullmatch(value):
            return _exactly(Decimal(value), kind)
        case Kind.TIMESTAMP if isinstance(value, str):
            digits = isinstance(value, _Digits) and re.fullmatch("-?[0-9]{1,18}", value)
            ms = int(value) if digits else from_iso(value, load_zone("UTC")) if is_text else None
            if ms is not None and 0 <= ms <= 253_402_300_799_999:
                return ms
    raise ValueError(value)


def _exactly(number: Decimal, kind: Type) -> Decimal:
    if not number:
        return Decimal(0)
    if number.adjusted() < kind.precision - kind.scale and number.adjusted() >= -kind.scale:
        fitted = number.quantize(Decimal(1).scaleb(-kind.scale), context=WIDE)
        if fitted == number:
            return fitted
    raise ValueError(number)


_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,9})?")

_SPACE = "".join(map(chr, range(0x21)))


def _cast(expr: Call, value: Any, _type: str) -> Value:
    given, kind = expr.arguments[0].type, expr.type
    if given == kind:
        return value  # type: ignore[no-any-return]
    if given == STRING:
        return _cast_text(str(value).strip(_SPACE), kind)
    if given == TIMESTAMP and kind == STRING:
        text = text_of_time(value)
        return None if text is None else text[:19].replace("T", " ") + re.sub(r"\.?0*\Z", "", text[19:-1])
    if kind == STRING:
        return format(value, f".{given.scale}f") if isinstance(value, Decimal) else str(value).lower()
    if kind == BOOLEAN:
        return bool(value != 0)
    if kind == TIMESTAMP:
        return value * 1000 if abs(value) <= 9_000_000_000_000_000 else None
    if given == TIMESTAMP:
        seconds = Decimal(value).scaleb(-3)
        return value // 1000 if kind == LONG else _cast_number(seconds, kind)
    return _cast_number(value, kind)


def _cast_text(text: str, kind: Type) -> Value:
    if kind == BOOLEAN:
        word = text.lower()
        return word in _TRUE if word in (*_TRUE, *_FALSE) else None
    if kind == TIMESTAMP:
        moment = f"{text}T00:00" if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else text
        return from_iso(moment, load_zone("UTC"))
    if kind == DOUBLE:
        number = rf"(?:{_NUMBER.replace('18', '100').replace('36', '100')})(?:[eE][+-]?[0-9]{{1,3}})?"
        whole = float(text) if re.fullmatch(rf"[+-]?{number}", text) else math.inf
        return whole if math.isfinite(whole) else None
    number = r"[0-9]{1,19}" if kind == LONG else _NUMBER
    if not re.fullmatch(rf"[+-]?(?:{number})", text):
        return None
    if kind == LONG:
        return coerce_number(int(text), LONG)
    return _cast_number(Decimal(text), kind)


_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{0,36})?|\.[0-9]{1,36}"
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")


def _cast_number(value: Any, kind: Type) -> Value:
    """Convert a number: towards zero for long, half away from zero for decimal."""
    if kind == DOUBLE:
        return double(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if kind == LONG:
            return coerce_number(math.trunc(value), LONG)
        scaled = value * 10.0**kind.scale
        if not math.isfinite(scaled):
            return None
        whole = math.floor(abs(scaled))
        whole += abs(scaled) - whole >= 0.5
        exact = Decimal(int(math.copysign(whole, scaled))).scaleb(-kind.scale)
    elif kind == LONG:
        return coerce_number(int(Decimal(value).to_integral_value(ROUND_DOWN)), LONG)
    else:
        exact = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP, context=WIDE)
    return coerce_number(exact, kind) if abs(exact) < 10 ** (kind.precision - kind.scale) else None


#: Functions that take NULL as a value.
TEXTS_WITH_NULLS: Mapping[str, Callable[[Call, list[Any]], Any]] = {"concat_ws": _concat_ws}
#: Functions that are NULL if an argument is NULL.
TEXT_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "split_part": _split_part,
    "lpad": _pad,
    "rpad": _pad,
    "ltrim": lambda _, text: text.lstrip(" "),
    "rtrim": lambda _, text: text.rstrip(" "),
    "left": lambda _, text, length: text[:length],
    "right": lambda _, text, length: text[-length:] if length else "",
    "repeat": lambda _, text, times: text * times,
    "instr": lambda _, text, part: text.find(part) + 1,
    "initcap": _initcap,
    "reverse": lambda _, text: "".join(reversed(text)),
    "url_encode": _url_encode,
    "url_decode": _url_decode,
    "parse_url": _parse_url,
    "base64": lambda _, text: base64.encodebytes(text.encode()).decode().replace("\n", ""),
    "unbase64": _unbase64,
    "md5": lambda _, text: _digest("md5", text),
    "sha1": lambda _, text: _digest("sha1", text),
    "sha2": lambda _, text, bits: _digest(f"sha{bits or 256}", text),
    "sha256": lambda _, text: _digest("sha256", text),
    "hmac_sha256": lambda _, text, file: hmac.digest(find_key(file), text.encode(), "sha256").hex(),
    "get_json_object": lambda _, text, path: find_in_json(parse_json_path(path), text),
    "from_json": _from_json,
    "to_json": _to_json,
    "user_agent_class": _agent_class,
    "ip_network": _ip_network,
    "cast": _cast,
    "try_cast": _cast,
}
