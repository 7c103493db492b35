"""The typed syntax tree of an expression.

Nodes are frozen pydantic models: they compare, hash, and convert to JSON and back without loss (``adapter``). Each node
checks its type against the typing rules when it is created, from text or from JSON, so no tree is ill-typed. Inner
nodes are created with ``of``, which computes the type. Nodes hold neither text nor positions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Self
from typing import Literal as Constant

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from rulecore.language import functions, types
from rulecore.language.types import Operand, Value
from streamcore.schema import BOOLEAN, LONG, STRING, Kind, Type


def _parse_type(value: object) -> Type:
    """Parse a type. Raise ``ValueError`` for a fault, since pydantic does not report a ``ConfigError``."""
    if isinstance(value, Type):
        return value
    try:
        return Type.parse(str(value))
    except Exception as error:
        raise ValueError(str(error)) from error


#: The name of a list that rules use.
ListName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,79}$")]
TypeText = Annotated[Type, PlainValidator(_parse_type), PlainSerializer(str, return_type=str)]
ArithmeticOp = Constant["+", "-", "*", "/", "%"]
ComparisonOp = Constant["=", "<>", "<", "<=", ">", ">=", "<=>"]
HigherOrderFunction = Constant["exists", "forall", "filter", "transform"]
AggregateFunction = Constant[
    "count",
    "sum",
    "avg",
    "stddev",
    "min",
    "max",
    "count_distinct",
    "approx_count_distinct",
    "first",
    "last",
    "seen",
    "time_decayed_count",
    "time_decayed_sum",
    "time_since_last",
]


class _AnyNode:
    """The pydantic type of a field that is an ``Expr``: its entry ``node`` names its class.

    A union type would make pydantic build the schemas of all classes again for each class, which takes 0.1 s at every
    start.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls.read)

    @staticmethod
    def read(value: object) -> ExprNode:
        """Return the node of a JSON value; a node is returned unchanged."""
        if isinstance(value, ExprNode):
            return value
        node_class = _NODES.get(str(value.get("node"))) if isinstance(value, Mapping) else None
        if node_class is None:
            raise ValueError(f"no node of an expression; those are {', '.join(_NODES)}")
        return node_class.model_validate(value)


if not TYPE_CHECKING:  # the definition for the type checker is below the classes
    Expr = Annotated[Any, _AnyNode]


class ExprNode(BaseModel):
    """The base of all nodes. ``children`` are in the order of the text. pydantic builds each class at its first use."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants", defer_build=True)

    @property
    def children(self) -> tuple[Expr, ...]:
        """Direct sub-expressions."""
        return ()


class ColumnRef(ExprNode):
    """A column of the event or of ``group_by``, or a column that replaces an aggregate or a list."""

    node: Constant["column"] = "column"
    name: str
    type: TypeText


#: A decimal in JSON. An exponent is not accepted: ``1e40000000`` would become 40 million digits.
_PLAIN_DECIMAL: Final = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?\Z")


class Literal(ExprNode):
    """A constant, as a logical value. NULL occurs only as a result of ``case``, where its type is known.

    In JSON a decimal is text, so that no reader converts it to a float.
    """

    node: Constant["literal"] = "literal"
    value: Annotated[Value, PlainSerializer(lambda v: format(v, "f") if isinstance(v, Decimal) else v)]
    type: TypeText

    @model_validator(mode="before")
    @classmethod
    def _read_json(cls, data: Any) -> Any:
        """Convert decimals from text, and doubles from whole numbers, as JSON holds them."""
        if not isinstance(data, Mapping):
            return data
        value, kind = data.get("value"), _parse_type(data.get("type")).kind
        try:
            if kind is Kind.DECIMAL and isinstance(value, str) and _PLAIN_DECIMAL.match(value):
                return {**data, "value": Decimal(value)}
            if kind is Kind.DOUBLE and isinstance(value, int) and not isinstance(value, bool):
                return {**data, "value": float(value)}
        except ArithmeticError:  # a whole number that no double holds
            raise ValueError(f"the value is no {kind.value}") from None
        return data

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if self.value is not None and types.literal(self.value, self.type) != self.type:
            raise ValueError(f"{self.value!r} is no {self.type}")
        if isinstance(self.value, int) and not types.MIN_LONG <= self.value <= types.MAX_LONG:
            raise ValueError(f"{self.value} does not fit 64 bits")
        if isinstance(self.value, float) and not abs(self.value) < float("inf"):
            raise ValueError("a constant is a finite number")
        return self

    @classmethod
    def of(cls, value: Value, default: Type = LONG) -> Literal:
        """Return the constant, typed as the language types it; ``default`` for NULL and for timestamps."""
        return cls(value=value, type=types.literal(value, default))


class IntervalLiteral(ExprNode):
    """A length of time in milliseconds. Its type is long, but only an interval can be added to a timestamp."""

    node: Constant["interval"] = "interval"
    ms: Annotated[int, Field(ge=0, le=types.MAX_LONG, strict=True)]

    @property
    def type(self) -> Type:
        """Always long."""
        return LONG


class _Typed(ExprNode):
    """A node whose type follows from its children."""

    type: TypeText

    def _result_type(self) -> Type:
        raise NotImplementedError

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if (expected := self._result_type()) != self.type:
            raise ValueError(f"type {self.type}, expected {expected}")
        return self


class Negate(_Typed):
    """``-x``; NULL for the smallest long."""

    node: Constant["negate"] = "negate"
    operand: Expr

    @classmethod
    def of(cls, operand: Expr) -> Negate:
        return cls(operand=operand, type=types.negate(operand_for(operand)))

    def _result_type(self) -> Type:
        return types.negate(operand_for(self.operand))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)


class Arithmetic(_Typed):
    """``left op right``; overflow and division by zero are NULL, ``/`` is double."""

    node: Constant["arithmetic"] = "arithmetic"
    op: ArithmeticOp
    left: Expr
    right: Expr

    @classmethod
    def of(cls, op: ArithmeticOp, left: Expr, right: Expr) -> Arithmetic:
        return cls(op=op, left=left, right=right, type=types.arithmetic(op, operand_for(left), operand_for(right)))

    def _result_type(self) -> Type:
        return types.arithmetic(self.op, operand_for(self.left), operand_for(self.right))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)


class _Condition(ExprNode):
    """A node that is boolean."""

    def _check(self) -> None:
        """Raise ``ExpressionTypeError`` unless the operands fit."""

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        self._check()
        return self

    @property
    def type(self) -> Type:
        """Always boolean."""
        return BOOLEAN


class Compare(_Condition):
    """``left op right``; ``<=>`` is the equality that treats NULL as a value."""

    node: Constant["compare"] = "compare"
    op: ComparisonOp
    left: Expr
    right: Expr

    @classmethod
    def of(cls, op: ComparisonOp, left: Expr, right: Expr) -> Compare:
        """Check the operands before pydantic does, so that the error is an ``ExpressionTypeError``."""
        types.comparison(op, operand_for(left), operand_for(right))
        return cls(op=op, left=left, right=right)

    def _check(self) -> None:
        types.comparison(self.op, operand_for(self.left), operand_for(self.right))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)


class _Terms(_Condition):
    """Two or more conditions joined by ``and`` or ``or``. No term has the class of its parent."""

    terms: Annotated[tuple[Expr, ...], Field(min_length=2)]

    def _check(self) -> None:
        for term in self.terms:
            types.check_condition(operand_for(term), type(self).__name__.lower())
            if isinstance(term, type(self)):
                raise ValueError(f"{type(self).__name__} directly inside {type(self).__name__}")

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.terms


class And(_Terms):
    """True when all terms are, false when one is, else NULL."""

    node: Constant["and"] = "and"


class Or(_Terms):
    """True when one term is, false when all are, else NULL."""

    node: Constant["or"] = "or"


class Not(_Condition):
    """True for false, false for true, NULL for NULL."""

    node: Constant["not"] = "not"
    operand: Expr

    def _check(self) -> None:
        types.check_condition(operand_for(self.operand), "not", 0)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)


class IsNull(_Condition):
    """``operand is null``; its result is never NULL."""

    node: Constant["is_null"] = "is_null"
    operand: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)


class In(_Condition):
    """``operand in (constants)``. The constants have the kind and scale of the operand, and none is NULL."""

    node: Constant["in"] = "in"
    operand: Expr
    values: Annotated[tuple[Literal, ...], Field(min_length=1)]

    def _check(self) -> None:
        for value in self.values:
            same_scale = value.type.scale == self.operand.type.scale
            if value.value is None or value.type.kind is not self.operand.type.kind or not same_scale:
                raise ValueError(f"in: {value.type} in a list for {self.operand.type}")

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)


class InList(_Condition):
    """``operand in list('name')``: NULL for a NULL operand, and if the list does not exist.

    ``of``: the type of the list's entries. Longs and decimals are compared by value, also with different scales.
    """

    node: Constant["in_list"] = "in_list"
    operand: Expr
    list: ListName
    of: TypeText

    @classmethod
    def of_list(cls, operand: Expr, name: str, of: Type) -> InList:
        """Check the operands before pydantic does, so that the error is an ``ExpressionTypeError``."""
        types.check_list_member(operand_for(operand), name, of)
        return cls(operand=operand, list=name, of=of)

    def _check(self) -> None:
        types.check_list_member(operand_for(self.operand), self.list, self.of)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)


class Lookup(ExprNode):
    """``lookup('name', key)``: the value of that entry, NULL if there is none.

    ``of``: the type of the list's entries. ``type``: the type of their values.
    """

    node: Constant["lookup"] = "lookup"
    list: ListName
    key: Expr
    of: TypeText
    type: TypeText

    @classmethod
    def of_list(cls, name: str, key: Expr, of: Type, kind: Type) -> Lookup:
        """Check the operands before pydantic does, so that the error is an ``ExpressionTypeError``."""
        types.check_list_member(operand_for(key), name, of)
        return cls(list=name, key=key, of=of, type=kind)

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        types.check_list_member(operand_for(self.key), self.list, self.of)
        return self

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.key,)


class Between(_Condition):
    """``low <= operand and operand <= high``."""

    node: Constant["between"] = "between"
    operand: Expr
    low: Expr
    high: Expr

    def _check(self) -> None:
        for bound in (self.low, self.high):
            types.comparison("<=", operand_for(self.operand), operand_for(bound))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand, self.low, self.high)


class Like(_Condition):
    """``operand like pattern``: ``%`` is any text, ``_`` any character, unless ``escape`` is before them."""

    node: Constant["like"] = "like"
    operand: Expr
    pattern: str
    escape: Annotated[str, Field(min_length=1, max_length=1)] = "\\"

    def _check(self) -> None:
        types.check_text(operand_for(self.operand), "like", 0)
        functions.like_tokens(self.pattern, self.escape)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)


class When(BaseModel):
    """One branch of ``case``."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    condition: Expr
    result: Expr


class Case(_Typed):
    """The result of the first branch whose condition is true; ``otherwise``, or NULL, when none is."""

    node: Constant["case"] = "case"
    whens: Annotated[tuple[When, ...], Field(min_length=1)]
    otherwise: Expr | None = None

    @classmethod
    def of(cls, whens: tuple[When, ...], otherwise: Expr | None) -> Case:
        return cls(whens=whens, otherwise=otherwise, type=_case_type(whens, otherwise))

    def _result_type(self) -> Type:
        return _case_type(self.whens, self.otherwise)

    @property
    def children(self) -> tuple[Expr, ...]:
        pairs = [part for when in self.whens for part in (when.condition, when.result)]
        return (*pairs, self.otherwise) if self.otherwise is not None else tuple(pairs)


class Call(_Typed):
    """A call of a function of ``functions.FUNCTIONS``."""

    node: Constant["call"] = "call"
    function: str
    arguments: tuple[Expr, ...]

    @classmethod
    def of(cls, function: str, arguments: tuple[Expr, ...]) -> Call:
        return cls(function=function, arguments=arguments, type=_call_type(function, arguments))

    def _result_type(self) -> Type:
        return _call_type(self.function, self.arguments)

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.arguments


class MemberOf(_Typed):
    """``operand.name``: a member of a struct; of an array of structs, the array of the members.

    NULL if the struct is NULL.
    """

    node: Constant["member"] = "member"
    operand: Expr
    name: str

    @classmethod
    def of(cls, operand: Expr, name: str) -> MemberOf:
        declared, kind = types.member(operand.type, name)
        return cls(operand=operand, name=declared, type=kind)

    def _result_type(self) -> Type:
        return types.member(self.operand.type, self.name)[1]

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)


class LambdaParameter(ExprNode):
    """The element of an array, inside the lambda that is applied to it."""

    node: Constant["parameter"] = "parameter"
    name: str
    type: TypeText


class SecretRef(ExprNode):
    """``secret('name')``: a key. ``file``: where each process that uses it reads it; the key itself is in no tree."""

    node: Constant["secret"] = "secret"
    name: str
    file: str
    type: TypeText = STRING


class HigherOrderCall(_Typed):
    """``exists(array, x -> body)`` and the like: the body is evaluated for each element, with NULL ones."""

    node: Constant["higher_order"] = "higher_order"
    function: HigherOrderFunction
    array: Expr
    parameter: str
    body: Expr

    @classmethod
    def of(cls, function: HigherOrderFunction, array: Expr, parameter: str, body: Expr) -> HigherOrderCall:
        kind = types.higher_order(function, array.type, body.type)
        return cls(function=function, array=array, parameter=parameter, body=body, type=kind)

    def _result_type(self) -> Type:
        return types.higher_order(self.function, self.array.type, self.body.type)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.array, self.body)


class AggregateCall(_Typed):
    """An aggregate of the events of a window; ``count`` without an argument is ``count(*)``.

    ``half_life_ms``: the time after which an event counts half, of ``functions.DECAYED_AGGREGATES`` only.
    """

    node: Constant["aggregate"] = "aggregate"
    function: AggregateFunction
    argument: Expr | None = None
    # Not in the JSON of other aggregates, so that their fingerprints stay as they are.
    half_life_ms: Annotated[int | None, Field(gt=0, exclude_if=lambda ms: ms is None)] = None

    @classmethod
    def of(cls, function: AggregateFunction, argument: Expr | None, half_life_ms: int | None = None) -> AggregateCall:
        kind = _aggregate_type(function, argument)
        return cls(function=function, argument=argument, half_life_ms=half_life_ms, type=kind)

    def _result_type(self) -> Type:
        if self.argument is None and self.function not in ("count", "time_decayed_count", "time_since_last"):
            raise ValueError(f"{self.function} needs an argument")
        if (self.half_life_ms is None) == (self.function in functions.DECAYED_AGGREGATES):
            raise ValueError(f"{self.function}: a time decayed aggregate, and no other one, has a half-life")
        return _aggregate_type(self.function, self.argument)

    @property
    def children(self) -> tuple[Expr, ...]:
        return () if self.argument is None else (self.argument,)


if TYPE_CHECKING:
    Expr = (
        ColumnRef
        | Literal
        | IntervalLiteral
        | Negate
        | Arithmetic
        | Compare
        | And
        | Or
        | Not
        | IsNull
        | In
        | InList
        | Lookup
        | Between
        | Like
        | Case
        | Call
        | MemberOf
        | SecretRef
        | LambdaParameter
        | HigherOrderCall
        | AggregateCall
    )


def operand_for(expr: Expr) -> Operand:
    """Return the properties of a node that the typing rules need."""
    if isinstance(expr, Literal):
        return Operand(expr.type, constant=True, value=expr.value)
    return Operand(expr.type, interval=isinstance(expr, IntervalLiteral), secret=isinstance(expr, SecretRef))


def _case_type(whens: tuple[When, ...], otherwise: Expr | None) -> Type:
    for index, when in enumerate(whens):
        types.check_condition(operand_for(when.condition), "when", 2 * index)
    results = [when.result for when in whens] + ([] if otherwise is None else [otherwise])
    known = [operand_for(r) for r in results if not (isinstance(r, Literal) and r.value is None)]
    return types.unify(known or [operand_for(results[0])], "case")


def _call_type(function: str, arguments: tuple[Expr, ...]) -> Type:
    return functions.call_type(function, tuple(operand_for(a) for a in arguments))


def _aggregate_type(function: str, argument: Expr | None) -> Type:
    return types.aggregate(function, None if argument is None else operand_for(argument))


_NODES: Final[Mapping[str, type[ExprNode]]] = {
    node.model_fields["node"].default: node
    for node in (
        ColumnRef,
        Literal,
        IntervalLiteral,
        Negate,
        Arithmetic,
        Compare,
        And,
        Or,
        Not,
        IsNull,
        In,
        InList,
        Lookup,
        Between,
        Like,
        Case,
        Call,
        MemberOf,
        SecretRef,
        LambdaParameter,
        HigherOrderCall,
        AggregateCall,
    )
}

#: Reads and writes any expression: ``adapter.validate_json(text)``, ``adapter.dump_json(expr)``.
adapter: TypeAdapter[Expr] = TypeAdapter(Expr)
