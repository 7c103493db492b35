"""What numba's Python lacks: reads of memory without checks, vectors of 32 bytes, and unsigned 64-bit arithmetic.

Each operation is a function in Python, which says what it does and runs if numba is off, and the same in LLVM's
instructions, which LLVM translates for any processor. All integers are int64, words of bits too: numba makes a double
of an int64 and a uint64. Reads look up to ``PAD`` bytes ahead, which must exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]
_Operation = TypeVar("_Operation", bound=Callable[..., Any])

PAD = 64
VECTOR = 32
_ALL = 2**64 - 1
_I8, _I32, _I64, _I128 = (ir.IntType(bits) for bits in (8, 32, 64, 128))
_V32 = ir.VectorType(_I8, VECTOR)


def _unsigned(word: int) -> int:
    """Return the low 64 bits, without a sign."""
    return int(word) & _ALL


def _signed(word: int) -> int:
    """Return the low 64 bits as an int64."""
    return _unsigned(word) - 2**64 if word >> 63 & 1 else _unsigned(word)


def byte(data: Bytes, at: int) -> int:
    """Return a byte."""
    return int(data[at])


def eight_bytes(data: Bytes, at: int) -> int:
    """Return eight bytes, the first one lowest."""
    return int.from_bytes(data[at : at + 8].tobytes(), "little", signed=True)


def special_bits(data: Bytes, at: int) -> int:
    """Return a bit for each of 32 bytes: whether it is a quote, a backslash, a control character or not ASCII."""
    return sum(1 << i for i in range(VECTOR) if data[at + i] in (0x22, 0x5C) or not 0x20 <= data[at + i] < 0x80)


def copy_vector(target: Bytes, to: int, source: Bytes, at: int) -> int:
    """Copy 32 bytes; return ``to``."""
    target[to : to + VECTOR] = source[at : at + VECTOR]
    return to


def lowest_bit(word: int) -> int:
    """Return the number of the lowest set bit of a word that is not zero."""
    return (int(word) & -int(word)).bit_length() - 1


def leading_zeros(word: int) -> int:
    """Return the number of zero bits above the highest set bit of a word that is not zero."""
    return 64 - _unsigned(word).bit_length()


def shift_left(word: int, bits: int) -> int:
    """Shift by 0 to 63 bits."""
    return _signed(int(word) << bits)


def shift_right(word: int, bits: int) -> int:
    """Shift by 0 to 63 bits, without regard to a sign."""
    return _signed(_unsigned(word) >> bits)


def product_high(x: int, y: int) -> int:
    """Return the upper 64 bits of the product of two unsigned words."""
    return _signed(_unsigned(x) * _unsigned(y) >> 64)


def product_low(x: int, y: int) -> int:
    """Return the lower 64 bits of the product of two words."""
    return _signed(int(x) * int(y))


def wrapped_sum(x: int, y: int) -> int:
    """Return the lower 64 bits of the sum of two words."""
    return _signed(int(x) + int(y))


def unsigned_less(x: int, y: int) -> bool:
    """Compare two unsigned words."""
    return _unsigned(x) < _unsigned(y)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(builder.bitcast(context.make_array(kind)(context, builder, array).data, _I8.as_pointer()), [at])


def _read(operation: _Operation, instructions: Callable[[Any, Any], Any]) -> _Operation:
    """Return the operation on bytes at a position. An intrinsic is no call, and numba counts no references for it."""

    @intrinsic  # type: ignore[untyped-decorator]
    def compiled(_typing: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return instructions(builder, _pointer(context, builder, signature.args[0], *arguments))

        return types.int64(data, types.int64), generate

    return operation if numba.config.DISABLE_JIT else compiled


def _compute(operation: _Operation, instructions: Callable[..., Any], operands: int, result: Any) -> _Operation:
    """Return the operation on one or two words."""
    signature = result(*[types.int64] * operands)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return instructions(builder, *arguments)

    @intrinsic  # type: ignore[untyped-decorator]
    def of_one(_typing: Any, x: Any) -> Any:
        return signature, generate

    @intrinsic  # type: ignore[untyped-decorator]
    def of_two(_typing: Any, x: Any, y: Any) -> Any:
        return signature, generate

    return operation if numba.config.DISABLE_JIT else of_one if operands == 1 else of_two


def _load_byte(builder: Any, pointer: Any) -> Any:
    return builder.zext(builder.load(pointer), _I64)


def _load_eight(builder: Any, pointer: Any) -> Any:
    return builder.load(builder.bitcast(pointer, _I64.as_pointer()), align=1)


def _load_special_bits(builder: Any, pointer: Any) -> Any:
    def all_of(value: int) -> Any:
        return ir.Constant(_V32, [value] * VECTOR)

    vector = builder.load(builder.bitcast(pointer, _V32.as_pointer()), align=1)
    # As signed bytes, those from 0x80 are below the space, too.
    flags = builder.icmp_signed("<", vector, all_of(0x20))
    for char in (0x22, 0x5C):
        flags = builder.or_(flags, builder.icmp_unsigned("==", vector, all_of(char)))
    return builder.zext(builder.bitcast(flags, _I32), _I64)


def _bit_count(name: str) -> Callable[[Any, Any], Any]:
    def instructions(builder: Any, word: Any) -> Any:
        return getattr(builder, name)(word, ir.Constant(ir.IntType(1), 1))

    return instructions


def _multiply_high(builder: Any, x: Any, y: Any) -> Any:
    product = builder.mul(builder.zext(x, _I128), builder.zext(y, _I128))
    return builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)


@intrinsic  # type: ignore[untyped-decorator]
def _copy_compiled(_typing: Any, target: Any, to: Any, source: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into = _pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        out_of = _pointer(context, builder, signature.args[2], arguments[2], arguments[3])
        vector = builder.load(builder.bitcast(out_of, _V32.as_pointer()), align=1)
        builder.store(vector, builder.bitcast(into, _V32.as_pointer()), align=1)
        return arguments[1]

    return types.int64(target, types.int64, source, types.int64), generate


if not numba.config.DISABLE_JIT:
    copy_vector = _copy_compiled
byte = _read(byte, _load_byte)
eight_bytes = _read(eight_bytes, _load_eight)
special_bits = _read(special_bits, _load_special_bits)
lowest_bit = _compute(lowest_bit, _bit_count("cttz"), 1, types.int64)
leading_zeros = _compute(leading_zeros, _bit_count("ctlz"), 1, types.int64)
shift_left = _compute(shift_left, lambda builder, x, bits: builder.shl(x, bits), 2, types.int64)
shift_right = _compute(shift_right, lambda builder, x, bits: builder.lshr(x, bits), 2, types.int64)
product_high = _compute(product_high, _multiply_high, 2, types.int64)
product_low = _compute(product_low, lambda builder, x, y: builder.mul(x, y), 2, types.int64)
wrapped_sum = _compute(wrapped_sum, lambda builder, x, y: builder.add(x, y), 2, types.int64)
unsigned_less = _compute(unsigned_less, lambda builder, x, y: builder.icmp_unsigned("<", x, y), 2, types.boolean)
