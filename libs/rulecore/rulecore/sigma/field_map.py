"""Maps Sigma fields to columns or expressions of the stream, and logsources to conditions on events.

::

    owner: soc                              # of the imported rules, instead of their authors
    fields:
      User: user_id                         # a column
      SourceIp: coalesce(ip, proxy_ip)      # or an expression
      Image: {is: image, case: lower}       # its values have no capitals, so they are compared without lower()
    keywords: [message, command_line]       # the columns in which keywords are looked for
    logsources:
      - {product: windows, category: process_creation, where: type = 'process'}
      - {service: sshd, where: type = 'login', fields: {User: account}}

A Sigma field with the name or the path of a column needs no entry, nor does a path to a member of one; capitals may
differ where one column alone has the name without them. Of the
logsources that match, the one with most names applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rulecore import language as lang
from rulecore.documents.yaml_reader import Json, PathKey, Problem, SourceLocation, YamlDocument, dotted_path, read_yaml
from rulecore.errors import ExpressionError
from rulecore.language import ColumnRef, Scope
from rulecore.sigma.errors import SigmaImportError
from rulecore.sigma.expression_text import ConditionText
from streamcore.schema import STRING, Field, StreamSchema, Type

_LOGSOURCE: Final = ("product", "category", "service")


@dataclass(frozen=True, slots=True)
class FieldTarget:
    """The expression of a field. ``column``: the name, if it is a column. ``lower``: its values have no capitals."""

    text: str
    type: Type
    nullable: bool
    column: str | None
    lower: bool = False


@dataclass(frozen=True, slots=True)
class LogSourceMapping:
    """An entry of ``logsources`` in the map. It matches rules whose logsource has all of its ``names``. ``where``: None
    for all events."""

    names: Mapping[str, str]
    where: ConditionText | None
    fields: Mapping[str, FieldTarget]


@dataclass(frozen=True, slots=True)
class FieldMap:
    """A map file that has been checked against the stream."""

    schema: StreamSchema
    fields: Mapping[str, FieldTarget] = field(default_factory=dict)
    keywords: tuple[FieldTarget, ...] = ()
    logsources: tuple[LogSourceMapping, ...] | None = None
    owner: str | None = None

    def logsource(self, names: Mapping[str, str]) -> LogSourceMapping | None:
        """Return the entry for a rule's logsource: of those that match, the one with most names.

        None if the map has no ``logsources``; raise ``SigmaImportError`` if it has some and none matches.
        """
        if self.logsources is None:
            return None
        fitting = [one for one in self.logsources if one.names.items() <= names.items()]
        if not fitting:
            shown = ", ".join(f"{k}: {v}" for k, v in names.items())
            raise SigmaImportError(
                f"no logsource of the map fits; write an entry {{{shown}, where: ...}} under logsources", ("logsource",)
            )
        return max(fitting, key=lambda one: len(one.names))

    def target(self, name: str, logsource_mapping: LogSourceMapping | None, path: PathKey) -> FieldTarget:
        """Return the target of a Sigma field; raise ``SigmaImportError`` if it is neither mapped nor a column."""
        known = self.fields if logsource_mapping is None else {**self.fields, **logsource_mapping.fields}
        if name in known:
            return known[name]
        if (declared := self._declared(name)) is not None:
            return _column(declared.name, self.schema)
        if (member := self._member(name)) is not None:
            return member
        raise SigmaImportError(self.missing([name]), path)

    def _declared(self, name: str) -> Field | None:
        """Return the field with this name or path; without one, the only field with it in other capitals."""
        fields = self.schema.fields
        exact = self.schema.get(name) or next((f for f in fields if ".".join(f.path) == name), None)
        if exact is not None:
            return exact
        other = [f for f in fields if name.lower() in (f.name.lower(), ".".join(f.path).lower())]
        return other[0] if len(other) == 1 else None

    def _member(self, name: str) -> FieldTarget | None:
        """Return the target of a path into a field that is an object, or an array of objects."""
        parts = name.split(".")
        for split in range(len(parts) - 1, 0, -1):
            place = ".".join(parts[:split])
            if (outer := self._declared(place)) is not None:
                text = ".".join(f"`{part}`" for part in (outer.name, *parts[split:]))
                try:
                    parsed = lang.parse(text, Scope.of_event(self.schema), field="field", expect=None)
                except ExpressionError:
                    return None
                return FieldTarget(lang.render(parsed), parsed.type, nullable=True, column=None)
        return None

    def missing(self, names: Sequence[str]) -> str:
        """Return the message about fields without a map entry."""
        columns = ", ".join(self.schema.names)
        entries = ", ".join(f"`{name}: COLUMN`" for name in names)
        shown = ", ".join(repr(name) for name in names)
        which = "is no column" if len(names) == 1 else "are no columns"
        return f"{shown} {which} of {self.schema.name} and not in the map; write {entries} under fields ({columns})"


def read_map(text: str, file: str, schema: StreamSchema) -> tuple[FieldMap | None, list[Problem]]:
    """Return the map in the text of a file, or None and its problems."""
    documents, problems = read_yaml(text, file)
    if problems:
        return None, problems
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        return None, [
            Problem(file, SourceLocation(1, 1), "", "a map is one mapping; it may have fields, keywords, logsources")
        ]
    reader = _Reader(documents[0], schema)
    found = reader.read_map(documents[0].value)
    return (None, reader.problems) if reader.problems else (found, [])


def _column(name: str, schema: StreamSchema) -> FieldTarget:
    declared = schema.get(name)
    assert declared is not None
    return FieldTarget(lang.render(ColumnRef(name=name, type=declared.type)), declared.type, declared.nullable, name)


@dataclass(slots=True)
class _Reader:
    """Reads one map. ``problems`` collects the faults."""

    document: YamlDocument
    schema: StreamSchema
    problems: list[Problem] = field(default_factory=list)

    def add_problem(self, path: PathKey, message: str) -> None:
        where = self.document.place(path)
        self.problems.append(Problem(self.document.file, where, dotted_path(self.document.known_prefix(path)), message))

    def read_map(self, value: Mapping[str, Json]) -> FieldMap:
        known = ("owner", "fields", "keywords", "logsources")
        for name in value:
            if name not in known:
                self.add_problem((name,), f"unknown entry; there are {', '.join(known)}")
        owner = value.get("owner")
        if owner is not None and not isinstance(owner, str):
            self.add_problem(("owner",), "must be text")
        return FieldMap(
            schema=self.schema,
            fields=self.read_fields(value.get("fields"), ("fields",)),
            keywords=self.read_keywords(value.get("keywords")),
            logsources=self.read_logsources(value["logsources"]) if "logsources" in value else None,
            owner=owner if isinstance(owner, str) else None,
        )

    def read_fields(self, value: Json, path: PathKey) -> dict[str, FieldTarget]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.add_problem(path, "must be a mapping of Sigma fields to columns or expressions")
            return {}
        found = {name: self.read_target(one, (*path, name)) for name, one in value.items()}
        return {name: target for name, target in found.items() if target is not None}

    def read_target(self, value: Json, path: PathKey) -> FieldTarget | None:
        lower = False
        if isinstance(value, dict):
            if not set(value) <= {"is", "case"} or value.get("case", "lower") != "lower":
                self.add_problem(path, "write {is: EXPRESSION, case: lower}")
                return None
            lower = "case" in value
            value = value.get("is")
        if not isinstance(value, str):
            self.add_problem(path, "must be a column or an expression")
            return None
        if self.schema.get(value) is not None:
            target: FieldTarget | None = _column(value, self.schema)
        else:
            target = self.read_expression(value, path)
        if target is None or not lower:
            return target
        return FieldTarget(target.text, target.type, target.nullable, target.column, lower=True)

    def read_expression(self, text: str, path: PathKey) -> FieldTarget | None:
        try:
            parsed = lang.parse(text, Scope.of_event(self.schema), field=str(path[-1]), expect=None)
        except ExpressionError as error:
            self.add_problem(path, f"{error.message}; {error.hint}" if error.hint else error.message)
            return None
        written = lang.render(parsed)
        simple = isinstance(parsed, lang.ColumnRef | lang.Call)
        return FieldTarget(written if simple else f"({written})", parsed.type, nullable=True, column=None)

    def read_keywords(self, value: Json) -> tuple[FieldTarget, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            self.add_problem(("keywords",), "must be a list of columns with text")
            return ()
        found = [self.read_target(one, ("keywords", i)) for i, one in enumerate(value)]
        for i, target in enumerate(found):
            if target is not None and target.type != STRING:
                self.add_problem(("keywords", i), f"is {target.type}; keywords are looked for in text")
        return tuple(target for target in found if target is not None)

    def read_logsources(self, value: Json) -> tuple[LogSourceMapping, ...]:
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            self.add_problem(
                ("logsources",), "must be a list of mappings, such as {product: windows, where: type = 'x'}"
            )
            return ()
        return tuple(
            self.read_logsource(one, ("logsources", i)) for i, one in enumerate(value) if isinstance(one, dict)
        )

    def read_logsource(self, value: Mapping[str, Json], path: PathKey) -> LogSourceMapping:
        if unknown := set(value) - {*_LOGSOURCE, "where", "fields"}:
            shown = ", ".join(sorted(unknown))
            self.add_problem((*path, min(unknown)), f"{shown}: there are {', '.join(_LOGSOURCE)}, where and fields")
        names = {name: str(value[name]).lower() for name in _LOGSOURCE if name in value}
        where = value.get("where")
        condition = None if where is None else self.read_where(where, (*path, "where"))
        return LogSourceMapping(names, condition, self.read_fields(value.get("fields"), (*path, "fields")))

    def read_where(self, value: Json, path: PathKey) -> ConditionText | None:
        if not isinstance(value, str):
            self.add_problem(path, "must be a condition")
            return None
        try:
            parsed = lang.parse(value, Scope.of_event(self.schema))
        except ExpressionError as error:
            self.add_problem(path, f"{error.message}; {error.hint}" if error.hint else error.message)
            return None
        terms: Sequence[lang.Expr] = parsed.terms if isinstance(parsed, lang.And) else (parsed,)
        texts = tuple(f"({lang.render(t)})" if isinstance(t, lang.Or) else lang.render(t) for t in terms)
        return ConditionText(texts, "and" if len(texts) > 1 else "", nullable=True)
