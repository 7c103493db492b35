"""The functions of texts that are more than their characters: patterns, URLs, digests, JSON, addresses, casts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rulecore.errors import ExpressionTypeError
from rulecore.language import types
from rulecore.language.patterns import check_regex, count_capture_groups, matches_nothing
from rulecore.language.signatures import (
    UNBOUNDED,
    FunctionSignature,
    Operands,
    check_texts,
    constant_text,
    text_to_long,
    text_to_text,
    whole_between,
)
from streamcore.errors import ConfigError
from streamcore.schema import BOOLEAN, DOUBLE, STRING, TIMESTAMP, Kind, Type, array_of

#: The most characters of ``lpad`` and ``rpad``.
MAX_PADDED = 1_000
MAX_REPEATED = 64
SHA2_BITS = (224, 256, 384, 512)
#: The parts of ``parse_url``.
URL_PARTS = ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO")
MAX_JSON_PATH = 32
_STEP = re.compile(r"\.([^.\[\]'\s*]+)|\[([0-9]{1,9})\]|\['([^'\\]+)'\]")
_GROUP = re.compile(r"\\(.)|\$(?:([0-9])|\{([^}]*)\})|([^\\$]+)|(.)", re.DOTALL)
#: The type names that casts accept beside those of streams.
_TYPE_NAMES = {"bigint": "long", "text": "string", "varchar": "string", "bool": "boolean"}


def parse_replacement(text: str) -> tuple[str | int, ...]:
    """Return the parts of a replacement, as Java has it: texts, and numbers of groups (``$1``, ``${1}``).

    A backslash takes the next character as it is. Raises ``ExpressionTypeError``.
    """
    parts = list[str | int]()
    for match in _GROUP.finditer(text):
        escaped, digit, braced, plain, other = match.groups()
        if digit is not None or (braced or "").isdigit():
            parts.append(int(digit if digit is not None else braced))
        elif braced is not None or other is not None:
            raise ExpressionTypeError(f"{match[0]!r} is no group", r"a group is $1; write \\$ for the character", 2)
        else:
            parts.append(escaped if escaped is not None else plain)
    return tuple(parts)


def parse_json_path(text: str) -> tuple[str | int, ...]:
    """Return the steps of a path such as ``$.items[0].name``: names and indexes. Raises ``ExpressionTypeError``."""
    position, steps = 1, list[str | int]()
    while text.startswith("$") and position < len(text) and (match := _STEP.match(text, position)):
        name, index, quoted = match.groups()
        steps.append(int(index) if index is not None else name if name is not None else quoted)
        position = match.end()
    if not text.startswith("$") or position < len(text) or len(steps) > MAX_JSON_PATH:
        hint = "accepted here: $.customer.name, $.items[0] or $['a name'], without wildcards"
        raise ExpressionTypeError(f"{text!r} is no path", hint, 1)
    return tuple(steps)


def _pattern(name: str, operands: Operands) -> str:
    types.check_text(operands[0], name, 0)
    pattern = constant_text(name, operands, 1)
    try:
        check_regex(pattern)
    except ExpressionTypeError as error:
        raise ExpressionTypeError(f"{name}: {error.message}", error.hint, 1) from None
    return pattern


def _regexp_replace(name: str, operands: Operands) -> Type:
    groups = count_capture_groups(_pattern(name, operands))
    for part in parse_replacement(constant_text(name, operands, 2)):
        if isinstance(part, int) and part > groups:
            message = f"{name}: the pattern has {groups} groups, there is no group {part}"
            raise ExpressionTypeError(message, "$0 is the whole match", 2)
    return STRING


def _split(name: str, operands: Operands) -> Type:
    if matches_nothing(_pattern(name, operands)):
        raise ExpressionTypeError(f"{name}: the pattern matches the empty text", "such as ',' or '[ ,]+'", 1)
    return array_of(STRING)


def _split_part(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    if constant_text(name, operands, 1) == "":
        raise ExpressionTypeError(f"{name}: the delimiter is empty", "", 1)
    if whole_between(name, operands, 2, -1_000_000, 1_000_000) == 0:
        raise ExpressionTypeError(f"{name}: the first part is number 1, the last one -1", "", 2)
    return STRING


def _concat_ws(name: str, operands: Operands) -> Type:
    constant_text(name, operands, 0)
    check_texts(name, operands)
    return STRING


def _pad(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    whole_between(name, operands, 1, 0, MAX_PADDED)
    if len(operands) > 2 and constant_text(name, operands, 2) == "":
        raise ExpressionTypeError(f"{name}: the text to pad with is empty", "", 2)
    return STRING


def _part_of_text(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    whole_between(name, operands, 1, 0, MAX_REPEATED if name == "repeat" else 1_000_000)
    return STRING


def _sha2(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    if whole_between(name, operands, 1, 0, 512) not in (0, *SHA2_BITS):
        raise ExpressionTypeError(f"{name}: bits are one of {', '.join(map(str, SHA2_BITS))}", "", 1)
    return STRING


def _hmac(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    if not operands[1].secret:
        raise ExpressionTypeError(f"{name}: the key is a secret", f"accepted here: {name}(text, secret('name'))", 1)
    return STRING


def _parse_url(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    if (part := constant_text(name, operands, 1)) not in URL_PARTS:
        raise ExpressionTypeError(f"{name}: unknown part {part!r}", f"accepted here: {', '.join(URL_PARTS)}", 1)
    if len(operands) > 2 and (constant_text(name, operands, 2) == "" or part != "QUERY"):
        raise ExpressionTypeError(f"{name}: a key is accepted for 'QUERY' only", "", 2)
    return STRING


def _get_json_object(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    parse_json_path(constant_text(name, operands, 1))
    return STRING


def _to_json(name: str, operands: Operands) -> Type:
    if not operands[0].type.is_nested:
        raise ExpressionTypeError(f"{name} takes an array, a map or a struct, not {operands[0].type}", "", 0)
    if _has_double(operands[0].type):
        raise ExpressionTypeError(f"{name}: a double has no exact text", "declare a decimal", 0)
    return STRING


def _from_json(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    try:
        kind = Type.parse(constant_text(name, operands, 1))
    except ConfigError as error:
        raise ExpressionTypeError(f"{name}: {error}", "", 1) from None
    if not kind.is_nested:
        hint = "of one value: cast(get_json_object(text, '$.name') as long)"
        raise ExpressionTypeError(f"{name} gives an array, a map or a struct, not {kind}", hint, 1)
    return kind


def _has_double(kind: Type) -> bool:
    inner = [member for _, member in kind.members] + ([kind.element] if kind.element else [])
    return kind == DOUBLE or any(map(_has_double, inner))


def _ip_network(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    whole_between(name, operands, 1, 0, 32)
    if len(operands) > 2:
        whole_between(name, operands, 2, 0, 128)
    return STRING


def read_cast_type(name: str, text: str) -> Type:
    """Return the type of ``cast(x as text)``; raise ``ExpressionTypeError``."""
    lower = text.strip().lower()
    if lower in ("int", "integer", "smallint", "tinyint"):
        raise ExpressionTypeError(f"{name}: there is no type {lower}", "write long", 1)
    try:
        return Type.parse(_TYPE_NAMES.get(lower, lower))
    except ConfigError as error:
        raise ExpressionTypeError(f"{name}: {error}", "", 1) from None


def _cast(name: str, operands: Operands) -> Type:
    kind = read_cast_type(name, constant_text(name, operands, 1))
    given = operands[0].type
    if given == kind:
        return kind
    hint = ""
    if given == DOUBLE and kind == STRING:
        hint = "a double has no exact text; make it a decimal first: cast(x as decimal(12,2))"
    elif kind == TIMESTAMP and given.kind in (Kind.DECIMAL, Kind.DOUBLE):
        hint = "write: timestamp_millis(cast(x * 1000 as long))"
    if hint or given.is_nested or kind.is_nested or (BOOLEAN in (given, kind) and TIMESTAMP in (given, kind)):
        raise ExpressionTypeError(f"{name}: {given} cannot become {kind}", hint, 0)
    return kind


TEXT_FUNCTIONS: Mapping[str, FunctionSignature] = {
    "regexp_replace": FunctionSignature("regexp_replace(text, 'pattern', 'replacement')", 3, 3, _regexp_replace),
    "split": FunctionSignature("split(text, 'pattern')", 2, 2, _split),
    "split_part": FunctionSignature("split_part(text, 'delimiter', number from 1)", 3, 3, _split_part),
    "concat_ws": FunctionSignature("concat_ws('separator', text, text, ...)", 2, UNBOUNDED, _concat_ws),
    "lpad": FunctionSignature("lpad(text, length) or lpad(text, length, 'pad')", 2, 3, _pad),
    "rpad": FunctionSignature("rpad(text, length) or rpad(text, length, 'pad')", 2, 3, _pad),
    "ltrim": FunctionSignature("ltrim(text)", 1, 1, text_to_text),
    "rtrim": FunctionSignature("rtrim(text)", 1, 1, text_to_text),
    "left": FunctionSignature("left(text, length)", 2, 2, _part_of_text),
    "right": FunctionSignature("right(text, length)", 2, 2, _part_of_text),
    "repeat": FunctionSignature("repeat(text, times)", 2, 2, _part_of_text),
    "instr": FunctionSignature("instr(text, part)", 2, 2, text_to_long),
    "initcap": FunctionSignature("initcap(text)", 1, 1, text_to_text),
    "reverse": FunctionSignature("reverse(text)", 1, 1, text_to_text),
    "url_encode": FunctionSignature("url_encode(text)", 1, 1, text_to_text),
    "url_decode": FunctionSignature("url_decode(text)", 1, 1, text_to_text),
    "parse_url": FunctionSignature("parse_url(url, 'HOST') or parse_url(url, 'QUERY', 'key')", 2, 3, _parse_url),
    "base64": FunctionSignature("base64(text)", 1, 1, text_to_text),
    "unbase64": FunctionSignature("unbase64(text)", 1, 1, text_to_text),
    "md5": FunctionSignature("md5(text)", 1, 1, text_to_text),
    "sha1": FunctionSignature("sha1(text)", 1, 1, text_to_text),
    "sha2": FunctionSignature("sha2(text, 256)", 2, 2, _sha2),
    "sha256": FunctionSignature("sha256(text)", 1, 1, text_to_text),
    "hmac_sha256": FunctionSignature("hmac_sha256(text, secret('name'))", 2, 2, _hmac),
    "get_json_object": FunctionSignature("get_json_object(text, '$.a.b[0]')", 2, 2, _get_json_object),
    "from_json": FunctionSignature("from_json(text, 'struct<name: string, n: long>')", 2, 2, _from_json),
    "to_json": FunctionSignature("to_json(array, map or struct)", 1, 1, _to_json),
    "user_agent_class": FunctionSignature("user_agent_class(text)", 1, 1, text_to_text),
    "ip_network": FunctionSignature("ip_network(ip, bits) or ip_network(ip, bits, bits of IPv6)", 2, 3, _ip_network),
    "cast": FunctionSignature("cast(x as long)", 2, 2, _cast),
    "try_cast": FunctionSignature("try_cast(x as long)", 2, 2, _cast),
}
