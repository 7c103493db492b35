"""Parses schemas in the language of ``.proto`` files (proto2, proto3, editions), with limits.

Only what decoding needs is kept: messages with their fields, and enums. Names of types are resolved when a field is
read, so a schema may use files that are not there for fields that no stream reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAX_NESTING, MAX_TOKENS = 32, 1_000_000
#: The largest number of a field.
MAX_NUMBER = 2**29 - 1
SCALARS = frozenset(
    {
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    }
)
#: The types that keys of maps may have.
MAP_KEYS = SCALARS - {"double", "float", "bytes"}
#: Types that every compiler of schemas has.
_BUILT_IN = """
syntax = "proto3"; package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; } message Duration { int64 seconds = 1; int32 nanos = 2; }
message DoubleValue { double value = 1; } message FloatValue { float value = 1; } message BoolValue { bool value = 1; }
message Int64Value { int64 value = 1; } message UInt64Value { uint64 value = 1; }
message Int32Value { int32 value = 1; }
message UInt32Value { uint32 value = 1; } message StringValue { string value = 1; }
message BytesValue { bytes value = 1; }
message Any { string type_url = 1; bytes value = 2; } message Empty {}
"""
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<token>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\.?[A-Za-z_][\w.]*|[-+]?[\d.][\w.+-]*|.)""",
    re.DOTALL,
)


class ProtoSchemaError(ValueError):
    """The text is not a valid schema, or exceeds a limit."""


@dataclass(frozen=True, slots=True)
class ProtoField:
    """A field of a message. ``type``: a scalar type or the name of another. ``presence``: whether the field may be
    absent; without it an absent field has the default of its type. ``oneof``: the name of the oneof that it is a member
    of, or empty. ``key``: of a map, the type of the keys, ``type`` being that of the values."""

    name: str
    number: int
    type: str
    repeated: bool
    presence: bool
    oneof: str = ""
    key: str = ""

    @property
    def shown(self) -> str:
        """The type as a schema has it, for messages."""
        return f"map<{self.key}, {self.type}>" if self.key else f"repeated {self.type}" if self.repeated else self.type


@dataclass(slots=True)
class ProtoMessage:
    """A message. ``fields``: by number. ``messages``: those declared in it, in order."""

    name: str
    fields: dict[int, ProtoField] = field(default_factory=dict)
    messages: list[ProtoMessage] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class ProtoEnum:
    """An enum. ``values``: the first name of each number. Compared by identity."""

    name: str
    values: Mapping[int, str]

    @property
    def default(self) -> str:
        """The name of the value that an absent field has: the first one."""
        return next(iter(self.values.values()), "0")


@dataclass(frozen=True, slots=True)
class ProtoSchema:
    """A file with all that it uses. ``messages``: of the file itself, in order. ``types``: by full name."""

    messages: Sequence[ProtoMessage]
    types: Mapping[str, ProtoMessage | ProtoEnum]

    def message_at(self, indexes: Sequence[int]) -> ProtoMessage | None:
        """Return the message at a path of indexes: that of a message in the file, of one in that, and so on."""
        messages, found = self.messages, None
        for index in indexes:
            if not 0 <= index < len(messages):
                return None
            found = messages[index]
            messages = found.messages
        return found

    def resolve(self, name: str, scope: str) -> ProtoMessage | ProtoEnum | None:
        """Return the type that a message with the full name ``scope`` means by a name; None if it is not there."""
        if name.startswith("."):
            return self.types.get(name[1:])
        while True:
            if found := self.types.get(f"{scope}.{name}" if scope else name):
                return found
            if not scope:
                return None
            scope = scope.rpartition(".")[0]


def parse_proto_schema(text: str, references: Sequence[str] = ()) -> ProtoSchema:
    """Return the schema of a file's text; raise ``ProtoSchemaError``. ``references``: the files that it uses."""
    types: dict[str, ProtoMessage | ProtoEnum] = {}
    for other in (_BUILT_IN, *references):
        _Parser(_tokens(other), types).read_file()
    return ProtoSchema(_Parser(_tokens(text), types).read_file(), types)


def _tokens(text: str) -> list[str]:
    found = [token for match in _TOKEN.finditer(text) if (token := match["token"]) is not None]
    if len(found) > MAX_TOKENS:
        raise ProtoSchemaError(f"the schema has more than {MAX_TOKENS} words, which is the limit")
    return found


class _Parser:
    """Parses one file. ``types``: receives its types."""

    def __init__(self, tokens: list[str], types: dict[str, ProtoMessage | ProtoEnum]) -> None:
        self.tokens, self.types = tokens, types
        self.at = 0
        self.implicit = False  # proto3: a field has no presence unless it says so
        self.package = ""

    def peek(self) -> str:
        if self.at >= len(self.tokens):
            raise ProtoSchemaError("the schema ends too early")
        return self.tokens[self.at]

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if expected and token != expected:
            raise ProtoSchemaError(f"the schema has {token[:40]!a} where {expected!r} is needed")
        self.at += 1
        return token

    def read_file(self) -> list[ProtoMessage]:
        messages: list[ProtoMessage] = []
        while self.at < len(self.tokens):
            match word := self.take():
                case "syntax":
                    self.take("=")
                    self.implicit = self.take()[1:-1] == "proto3"
                    self.take(";")
                case "package":
                    self.package = self.take()
                    self.take(";")
                case "message":
                    messages.append(self.read_message(self.package, 0))
                case "enum":
                    self.read_enum(self.package)
                case "service" | "extend":
                    self.skip_block()
                case "edition" | "import" | "option":
                    self.implicit = not _presence(self.skip_statement(), default=not self.implicit)
                case ";":
                    pass
                case _:
                    raise ProtoSchemaError(f"the schema has {word[:40]!a} where a declaration is needed")
        return messages

    def read_message(self, scope: str, depth: int) -> ProtoMessage:
        if depth > MAX_NESTING:
            raise ProtoSchemaError(f"the schema nests deeper than {MAX_NESTING} levels, which is the limit")
        message = ProtoMessage(self.declared(scope))
        self.add_type(message)
        self.take("{")
        while (word := self.take()) != "}":
            match word:
                case "message" if self.is_declaration():
                    message.messages.append(self.read_message(message.name, depth + 1))
                case "enum" if self.is_declaration():
                    self.read_enum(message.name)
                case "extend" if self.tokens[self.at + 1 : self.at + 2] == ["{"]:
                    self.skip_block()
                case "option" | "reserved" | "extensions":
                    self.skip_statement()
                case "oneof":
                    self.read_oneof(message)
                case ";":
                    pass
                case "repeated" | "optional" | "required":
                    self.read_field(message, self.take(), repeated=word == "repeated", presence=True)
                case _:
                    self.read_field(message, word, repeated=False, presence=not self.implicit)
        return message

    def is_declaration(self) -> bool:
        """Return whether a name and a block follow; else the word is the name of a type."""
        return self.tokens[self.at + 1 : self.at + 2] == ["{"]

    def read_oneof(self, message: ProtoMessage) -> None:
        name = self.take()
        self.take("{")
        while (word := self.take()) != "}":
            if word == "option":
                self.skip_statement()
            elif word != ";":
                self.read_field(message, word, repeated=False, presence=True, oneof=name)

    def read_field(self, message: ProtoMessage, kind: str, *, repeated: bool, presence: bool, oneof: str = "") -> None:
        """Read a field from behind its type."""
        key = ""
        if kind == "group":
            raise ProtoSchemaError("the schema has a group, which is not supported")
        if kind == "map" and self.peek() == "<":
            self.take("<")
            key = self.take()
            self.take(",")
            kind = self.take()
            self.take(">")
            if key not in MAP_KEYS:
                raise ProtoSchemaError(f"the schema has a map with keys of the type {key[:40]!a}")
            repeated = True
        name = self.take()
        self.take("=")
        number = self.read_number()
        if not 1 <= number <= MAX_NUMBER or number in message.fields:
            raise ProtoSchemaError(f"the schema's message {message.name[:60]!a} has a wrong number {number}")
        if self.peek() == "[":
            presence = _presence(self.skip_options(), default=presence)
        self.take(";")
        message.fields[number] = ProtoField(name, number, kind, repeated, presence, oneof, key)

    def read_number(self) -> int:
        text = self.take()
        if text in ("-", "+"):
            text += self.take()
        try:
            return int(text, 8) if re.fullmatch(r"-?0[0-7]+", text) else int(text, 0)
        except ValueError:
            raise ProtoSchemaError(f"the schema has {text[:40]!a} where a number is needed") from None

    def read_enum(self, scope: str) -> None:
        name, values = self.declared(scope), dict[int, str]()
        self.take("{")
        while (word := self.take()) != "}":
            if word in ("option", "reserved"):
                self.skip_statement()
            elif word != ";":
                self.take("=")
                values.setdefault(self.read_number(), word)
                if self.peek() == "[":
                    self.skip_options()
                self.take(";")
        self.add_type(ProtoEnum(name, values))

    def declared(self, scope: str) -> str:
        name = self.take()
        return f"{scope}.{name}" if scope else name

    def add_type(self, kind: ProtoMessage | ProtoEnum) -> None:
        if kind.name in self.types:
            if kind.name.startswith("google.protobuf."):  # a registry may have these as references, too
                return
            raise ProtoSchemaError(f"the schema declares the type {kind.name[:60]!a} twice")
        self.types[kind.name] = kind

    def skip_statement(self) -> list[str]:
        """Skip up to the semicolon, and return the skipped text; values of options may have braces."""
        begin, depth = self.at, 0
        while (word := self.take()) != ";" or depth:
            depth += (word == "{") - (word == "}")
        return self.tokens[begin : self.at]

    def skip_options(self) -> list[str]:
        """Skip the text in brackets, and return it."""
        begin, depth = self.at, 0
        while True:
            word = self.take()
            depth += (word in "[{") - (word in "]}")
            if depth == 0:
                return self.tokens[begin : self.at]

    def skip_block(self) -> None:
        while self.take() != "{":
            pass
        depth = 1
        while depth:
            word = self.take()
            depth += (word == "{") - (word == "}")


def _presence(option: Sequence[str], *, default: bool) -> bool:
    """Return whether fields have presence, by the option of an edition that says so, or else ``default``."""
    if "DELIMITED" in option:
        raise ProtoSchemaError("the schema has messages in the form of groups, which is not supported")
    for name, value in zip(option, option[2:], strict=False):
        if name.endswith("field_presence"):
            return value != "IMPLICIT"
    return default
