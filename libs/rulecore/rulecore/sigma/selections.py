"""Translates an entry of a selection, ``Field|modifier|modifier: values``, to a condition on the stream.

Text is compared without regard to case, as Sigma requires: with ``lower()``, unless no character of the value has case,
the map declares the field as lower case, or the rule has the modifier ``cased``. A missing field satisfies only
``null`` and ``exists: false``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rulecore.documents.yaml_reader import Json, PathKey
from rulecore.errors import ExpressionTypeError
from rulecore.language import ExpressionLimits
from rulecore.language.parsing.literals import quote
from rulecore.language.patterns import check_regex
from rulecore.language.types import is_numeric
from rulecore.sigma.comparisons import (
    COMPARISONS,
    comparison,
    constants,
    exists,
    fold,
    in_lists,
    like,
    part_of_time,
    to_pattern,
)
from rulecore.sigma.errors import SigmaImportError
from rulecore.sigma.expression_text import ConditionText, conjunction, disjunction, negation
from rulecore.sigma.field_map import FieldTarget
from rulecore.sigma.wildcards import TEXT_MODIFIERS, Pattern, apply_modifiers, literal_text
from streamcore.schema import STRING, Kind, Type
from streamcore.schema.types import array_of, quote_name

Resolve = Callable[[str, PathKey], FieldTarget]

_TIMES: Final = ("minute", "hour")
_TYPES: Final = frozenset({"re", "cidr", "exists", "fieldref", *COMPARISONS, *_TIMES})
_FLAGS: Final = frozenset("ims")
_SWITCHES: Final = frozenset({"all", "cased", "neq"})
_REJECTED: Final[Mapping[str, str]] = {
    "expand": "placeholders have no value; write the values into the rule, or use a Headgate list",
    **dict.fromkeys(("day", "week", "month", "year"), "there is no such function of a timestamp in conditions"),
}
_REGEX_BYTES: Final = ExpressionLimits().regex_bytes


@dataclass(frozen=True, slots=True)
class SelectionItem:
    """An entry of a selection. ``field``: "" for keywords. ``values``: as in YAML."""

    field: str
    modifiers: tuple[str, ...]
    values: tuple[Json, ...]
    path: PathKey

    @classmethod
    def of(cls, name: str, value: Json, path: PathKey) -> SelectionItem:
        """Parse an entry of a mapping; raise ``SigmaImportError`` for an unknown modifier, and for invalid values."""
        field_name, *modifiers = name.split("|")
        for one in modifiers:
            if one in _REJECTED:
                raise SigmaImportError(f"{one}: {_REJECTED[one]}", path)
            if one not in _TYPES | _SWITCHES | _FLAGS | TEXT_MODIFIERS:
                raise SigmaImportError(f"the modifier {one!r} is not known", path)
        values = tuple(value) if isinstance(value, list) else (value,)
        if not values or any(isinstance(one, dict | list) for one in values):
            raise SigmaImportError("needs a value, or a list of values", path)
        return cls(field_name, tuple(modifiers), values, path)

    def has(self, modifier: str) -> bool:
        """Return whether the entry has this modifier."""
        return modifier in self.modifiers

    @property
    def kind(self) -> str:
        """The modifier that determines the kind of value; "" for a plain value."""
        found = [m for m in self.modifiers if m in _TYPES]
        if len(found) > 1:
            raise SigmaImportError(f"{' and '.join(found)} do not go together", self.path)
        if not found and (flags := [m for m in self.modifiers if m in _FLAGS]):
            raise SigmaImportError(f"{flags[0]} is for re", self.path)
        return found[0] if found else ""


@dataclass(slots=True)
class SelectionTranslator:
    """Translates entries to conditions. ``notes`` collects the approximations."""

    resolve: Resolve
    keywords: Sequence[FieldTarget]
    notes: dict[str, None] = field(default_factory=dict)

    def translate(self, item: SelectionItem) -> ConditionText:
        """Return the condition of one entry."""
        try:
            found = self.translate_field(item) if item.field else self.translate_keywords(item)
        except SigmaImportError as error:
            raise SigmaImportError(error.message, error.path or item.path) from None
        return negation(found) if item.has("neq") else found

    def translate_keywords(self, item: SelectionItem) -> ConditionText:
        """Return the condition that keywords are in any of the map's columns for them."""
        if not self.keywords:
            raise SigmaImportError("keywords: write the columns that they are looked for in under keywords in the map")
        if item.kind not in ("", "re") or item.has("startswith") or item.has("endswith"):
            raise SigmaImportError("keywords: are looked for anywhere in the event; this modifier needs a field")
        contains = () if item.kind == "re" or item.has("contains") else ("contains",)
        modifiers = (*(m for m in item.modifiers if m not in ("all", "neq")), *contains)
        each = [
            disjunction(
                self.compare(target, replace(item, values=(value,), modifiers=modifiers)) for target in self.keywords
            )
            for value in item.values
        ]
        return conjunction(each) if item.has("all") else disjunction(each)

    def translate_field(self, item: SelectionItem) -> ConditionText:
        return self.compare(self.resolve(item.field, item.path), item)

    def compare(self, target: FieldTarget, item: SelectionItem, depth: int = 1) -> ConditionText:
        """Return the condition of an entry. ``depth``: one more than the number of arrays around the target."""
        if target.type.kind is Kind.ARRAY and item.kind not in ("exists", "fieldref"):
            return self.compare_elements(target, item, depth)
        if target.type.kind is Kind.STRUCT and (item.kind == "re" or (not item.kind and item.has("contains"))):
            return self.compare_members(target, item, depth)
        match item.kind:
            case "":
                return self.compare_plain(target, item)
            case "exists":
                return _combine(item, [exists(target, value) for value in item.values])
            case "re":
                return _combine(item, [self.match_regex(target, item, value) for value in item.values])
            case "cidr":
                return _combine(item, [self.match_network(target, value) for value in item.values])
            case "fieldref":
                return _combine(item, [self.compare_fields(target, item, value) for value in item.values])
            case "minute" | "hour" as unit:
                return _combine(item, [part_of_time(target, unit, value) for value in item.values])
        return _combine(item, [comparison(target, item.kind, value) for value in item.values])

    # --- arrays -------------------------------------------------------------------------------------------------------

    def compare_elements(self, target: FieldTarget, item: SelectionItem, depth: int) -> ConditionText:
        """Return the condition that an element of an array has one of the values; with ``all``, that each value is that
        of an element. ``null`` is an array that is not there."""
        self.notes[f"{item.field} is an array: one element that matches is enough, which Sigma leaves open"] = None
        name = f"e{depth}"
        assert target.type.element is not None, "an array has a type of elements"
        element = replace(target, text=name, type=target.type.element, nullable=True, column=None)
        values = tuple(value for value in item.values if value is not None)
        each = [(value,) for value in values] if item.has("all") else [values] if values else []
        found = [self.compare(element, replace(item, values=group), depth + 1) for group in each]
        conditions = [
            ConditionText.atom(f"any({target.text}, {name} -> {one.text})", nullable=target.nullable or one.nullable)
            for one in found
        ]
        if len(values) < len(item.values):
            conditions.insert(0, ConditionText.atom(f"{target.text} is null", nullable=False))
        return _combine(item, conditions)

    # --- objects ------------------------------------------------------------------------------------------------------

    def compare_members(self, target: FieldTarget, item: SelectionItem, depth: int) -> ConditionText:
        """Return the condition that a text in an object, however deep, has one of the values; with ``all``, that each
        value is in one of the texts."""
        texts = [*_texts_inside(target)]
        if not texts:
            raise SigmaImportError(f"{item.field} is {target.type} in the stream, which has no text")
        self.notes[f"{item.field} is an object: a text in one of its members is enough, which Sigma leaves open"] = None
        values = [(one,) for one in item.values] if item.has("all") else [item.values]
        found = [
            disjunction([self.compare(text, replace(item, values=group), depth) for text in texts]) for group in values
        ]
        return conjunction(found)

    # --- plain values -------------------------------------------------------------------------------------------------

    def compare_plain(self, target: FieldTarget, item: SelectionItem) -> ConditionText:
        nulls = [ConditionText.atom(f"{target.text} is null", nullable=False) for value in item.values if value is None]
        values = [value for value in item.values if value is not None]
        changed = tuple(m for m in item.modifiers if m in TEXT_MODIFIERS)
        if nulls and changed:
            raise SigmaImportError(f"{changed[0]} of null has no meaning")
        if target.type == STRING:
            conditions = self.compare_texts(target, item, apply_modifiers([to_pattern(v) for v in values], changed))
        elif changed:
            raise SigmaImportError(f"{changed[0]} is for text; {item.field} is {target.type} in the stream")
        else:
            conditions = constants(target, values, each=item.has("all"))
        if "windash" in changed:
            self.notes["windash: a dash or slash that begins a word stands for any of - / \u2013 \u2014 \u2015"] = None
        return _combine(item, [*nulls[:1], *conditions])

    def compare_texts(
        self, target: FieldTarget, item: SelectionItem, patterns: Sequence[Pattern]
    ) -> list[ConditionText]:
        """Return the conditions of patterns: one ``in`` for those without wildcards, unless ``all`` must hold."""
        equal: dict[str, list[str]] = {}
        others = []
        for pattern in patterns:
            subject, folded = fold(target, pattern, cased=item.has("cased"))
            text = literal_text(folded)
            if text is None:
                others.append(like(target, subject, folded))
            else:
                equal.setdefault(subject, []).append(quote(text))
        return in_lists(equal, target, each=item.has("all")) + others

    # --- values of other kinds ----------------------------------------------------------------------------------------

    def match_regex(self, target: FieldTarget, item: SelectionItem, value: Json) -> ConditionText:
        _check_text(target, item, "re")
        if not isinstance(value, str):
            raise SigmaImportError("re: needs a pattern as text")
        if unknown := [m for m in item.modifiers if m in TEXT_MODIFIERS]:
            raise SigmaImportError(f"{unknown[0]} and re do not go together")
        flags = "".join(m for m in item.modifiers if m in _FLAGS)
        pattern = f"(?{flags}){value}" if flags else value
        if len(pattern.encode()) > _REGEX_BYTES:
            raise SigmaImportError(f"re: the pattern has more than {_REGEX_BYTES} bytes")
        try:
            check_regex(pattern)
        except ExpressionTypeError as error:
            message = f"re: {error.message}; only patterns that are matched in linear time are accepted"
            raise SigmaImportError(message) from None
        self.notes["re: found anywhere in the text (write ^ and $ for the whole), in Rust's dialect"] = None
        return ConditionText.atom(f"regexp_like({target.text}, {quote(pattern)})", nullable=target.nullable)

    def match_network(self, target: FieldTarget, value: Json) -> ConditionText:
        if target.type != STRING or not isinstance(value, str):
            raise SigmaImportError("cidr: needs a network as text, and a field that holds addresses as text")
        try:
            network = str(ipaddress.ip_network(value, strict=False))
        except ValueError:
            raise SigmaImportError(f"cidr: {value[:60]!r} is no network, such as 10.0.0.0/8") from None
        if "/" in value and network.split("/", maxsplit=1)[0] != value.split("/")[0].lower():
            self.notes[f"cidr: {value} was read as {network}"] = None
        return ConditionText.atom(f"cidr_match({target.text}, {quote(network)})", nullable=target.nullable)

    def compare_fields(self, target: FieldTarget, item: SelectionItem, value: Json) -> ConditionText:
        if not isinstance(value, str):
            raise SigmaImportError("fieldref: needs the name of a field")
        other = self.resolve(value, item.path)
        places = [m for m in item.modifiers if m in TEXT_MODIFIERS]
        nullable = target.nullable or other.nullable
        if target.type == other.type == STRING:
            left, right = (
                one.text if item.has("cased") or one.lower else f"lower({one.text})" for one in (target, other)
            )
            functions = {"contains": "contains", "startswith": "starts_with", "endswith": "ends_with"}
            if len(places) > 1 or not set(places) <= functions.keys():
                raise SigmaImportError(f"{' and '.join(places)} and fieldref do not go together")
            text = f"{functions[places[0]]}({left}, {right})" if places else f"{left} = {right}"
            return ConditionText.atom(text, nullable=nullable)
        both = target.type == other.type or (is_numeric(target.type) and is_numeric(other.type))
        if places or not both:
            raise SigmaImportError(f"fieldref: {item.field} is {target.type} and {value} is {other.type}")
        return ConditionText.atom(f"{target.text} = {other.text}", nullable=nullable)


def _texts_inside(target: FieldTarget) -> Iterator[FieldTarget]:
    """Yield the members of an object that are text, or arrays with text inside; of a map its values are one."""
    for name, kind in target.type.members:
        member = replace(target, text=f"{target.text}.{quote_name(name)}", type=kind, nullable=True, column=None)
        if kind.kind is Kind.MAP:
            member = replace(member, text=f"map_values({member.text})", type=array_of(kind.items))
        if kind == STRING or (member.type.kind is Kind.ARRAY and _has_text(member.type)):
            yield member
        elif kind.kind is Kind.STRUCT:
            yield from _texts_inside(member)


def _has_text(kind: Type) -> bool:
    if kind.kind is Kind.ARRAY:
        return _has_text(kind.items)
    return kind == STRING or (kind.kind is Kind.STRUCT and any(_has_text(one) for _, one in kind.members))


def _combine(item: SelectionItem, conditions: Sequence[ConditionText]) -> ConditionText:
    return conjunction(conditions) if item.has("all") else disjunction(conditions)


def _check_text(target: FieldTarget, item: SelectionItem, what: str) -> None:
    if target.type != STRING:
        raise SigmaImportError(f"{what} is for text; {item.field} is {target.type} in the stream")
