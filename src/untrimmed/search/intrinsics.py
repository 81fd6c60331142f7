"""What loops over codes and rows are made of: arithmetic on vectors of numbers, as LLVM has it.

It is spelled out, since numba widens small integers to 64 bits; LLVM turns it into what the processor has. numba keeps
what it compiled until the file of the loop changes: so `kernels.MADE_OF` names this one (tests/search/test_codes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, no_type_check

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from untrimmed.search.products import LANES

FUZZ = np.float32(1e-6)  # of sums in float32
_I8, _I16, _I32, _I64, _HALF, _F32 = (*map(ir.IntType, (8, 16, 32, 64)), ir.HalfType(), ir.FloatType())
_INTS, _FLOATS = ir.VectorType(_I32, LANES), ir.VectorType(_F32, LANES)


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile a function when it is first called, once and for all where there is a folder to keep the result in."""

    def compile_later(function: Any) -> Any:
        try:
            return numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's can be written to
            return numba.njit(nogil=True, **options)(function)

    return compile_later


def _number(value: int) -> Any:
    return ir.Constant(_I64, value)


def _address(b: Any, context: Any, kind: Any, array: Any, index: Any) -> Any:
    return b.gep(context.make_array(kind)(context, b, array).data, [index])


def _load(b: Any, address: Any, kind: Any, alignment: int) -> Any:
    loaded = b.load(b.bitcast(address, kind.as_pointer()))
    loaded.align = alignment
    return loaded


def _store(b: Any, value: Any, address: Any) -> None:
    b.store(value, b.bitcast(address, value.type.as_pointer())).align = 4


def _summed(b: Any, steps: Any, zeros: list[Any], step: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """What `step` makes of zeros when it is applied once at least, and as often as there are steps."""
    before, loop, behind = b.block, b.append_basic_block("loop"), b.append_basic_block("behind")
    b.branch(loop)
    b.position_at_end(loop)
    number, sums = b.phi(_I64), [b.phi(zero.type) for zero in zeros]
    following, added = b.add(number, _number(1)), step(number, sums)
    for phi, first, later in zip([number, *sums], [_number(0), *zeros], [following, *added], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, b.block)
    b.cbranch(b.icmp_signed("<", following, steps), loop, behind)
    b.position_at_end(behind)
    return added


def _of_each_lane(b: Any, codes: Any, query_at: Any, pair: Any, total: Any) -> Any:
    """total[lane] + codes[2 lane] * query[2 pair] + codes[2 lane + 1] * query[2 pair + 1], in 16 bits."""
    undefined, first = ir.Constant(_INTS, ir.Undefined), ir.Constant(_INTS, [0] * LANES)
    two = _load(b, b.gep(query_at, [b.mul(pair, _number(2))]), _I32, 2)
    spread = b.shuffle_vector(b.insert_element(undefined, two, ir.Constant(_I32, 0)), undefined, first)
    wide = ir.VectorType(_I32, 2 * LANES)
    both = b.mul(b.sext(codes, wide), b.sext(b.bitcast(spread, codes.type), wide))
    odd_and_even = (ir.Constant(_INTS, list(range(i, 2 * LANES, 2))) for i in (0, 1))
    return b.add(total, b.add(*(b.shuffle_vector(both, both, places) for places in odd_and_even)))


def _lane_products(bits: int) -> Any:
    """out[lane] = the sum of a code of this many bits times query[k], over all k of the lane from codes[start] on.

    Of 8 bits are two numbers of each lane side by side, of 4 bits four: two in low halves of bytes, two in high ones,
    without signs. Numbers are a multiple of eight. An addition need not wait for the one before: there are four sums.
    """

    @intrinsic
    @no_type_check
    def products(_: Any, codes: Any, start: Any, query: Any, numbers: Any, out: Any) -> Any:
        def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
            codes_at = _address(b, context, signature.args[0], values[0], values[1])
            query_at = _address(b, context, signature.args[2], values[2], _number(0))
            of_bytes, shorts = ir.VectorType(_I8, 2 * LANES), ir.VectorType(_I16, 2 * LANES)

            def read(place: Any) -> Any:
                return _load(b, b.gep(codes_at, [b.mul(place, _number(2 * LANES))]), of_bytes, 1)

            def pairs(eight: Any) -> list[Any]:
                if bits == 8:
                    return [b.sext(read(b.add(b.mul(eight, _number(4)), _number(i))), shorts) for i in range(4)]
                both = [read(b.add(b.mul(eight, _number(2)), _number(i))) for i in range(2)]
                low, shift = ir.Constant(of_bytes, [15] * 2 * LANES), ir.Constant(of_bytes, [4] * 2 * LANES)
                return [b.zext(part, shorts) for some in both for part in (b.and_(some, low), b.lshr(some, shift))]

            def step(eight: Any, sums: list[Any]) -> list[Any]:
                first = b.mul(eight, _number(4))
                return [
                    _of_each_lane(b, some, query_at, b.add(first, _number(i)), total)
                    for i, (some, total) in enumerate(zip(pairs(eight), sums, strict=True))
                ]

            zeros = [ir.Constant(_INTS, [0] * LANES)] * 4
            one, two, three, four = _summed(b, b.sdiv(values[3], _number(8)), zeros, step)
            total = b.add(b.add(one, two), b.add(three, four))
            _store(b, total, _address(b, context, signature.args[4], values[4], _number(0)))
            return context.get_dummy_value()

        return types.void(codes, types.intp, query, types.intp, out), generate

    return products


byte_products, nibble_products = _lane_products(8), _lane_products(4)


def _row_product(at_once: int) -> Any:
    """The sum of rows[start + k] * query[first + k] over so many steps of 16 numbers of float16, `at_once` in each."""

    @intrinsic
    @no_type_check
    def product(_: Any, rows: Any, start: Any, query: Any, first: Any, steps: Any) -> Any:
        def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
            rows_at = _address(b, context, signature.args[0], values[0], values[1])
            query_at = _address(b, context, signature.args[2], values[2], values[3])

            def step(number: Any, sums: list[Any]) -> list[Any]:
                added = []
                for part, total in enumerate(sums):
                    place = b.add(b.mul(number, _number(at_once * LANES)), _number(part * LANES))
                    some = b.fpext(_load(b, b.gep(rows_at, [place]), ir.VectorType(_HALF, LANES), 2), _FLOATS)
                    found = b.fmul(some, _load(b, b.gep(query_at, [place]), _FLOATS, 4), flags=("contract",))
                    added.append(b.fadd(found, total, flags=("contract",)))
                return added

            zeros = [ir.Constant(_FLOATS, [0.0] * LANES)] * at_once
            return _folded(b, _summed(b, values[4], zeros, step), b.fadd)

        return types.float32(rows, types.intp, query, types.intp, types.intp), generate

    return product


four_at_once, one_at_once = _row_product(4), _row_product(1)


@intrinsic
@no_type_check
def whole_product(_: Any, rows: Any, start: Any, query: Any, steps: Any) -> Any:
    """The sum of rows[start + k] in 8 bits times query[k] in 16 over so many steps of 32 numbers."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        rows_at = _address(b, context, signature.args[0], values[0], values[1])
        query_at = _address(b, context, signature.args[2], values[2], _number(0))
        wide = ir.VectorType(_I32, 2 * LANES)
        odd_and_even = [ir.Constant(_INTS, list(range(i, 2 * LANES, 2))) for i in (0, 1)]

        def step(number: Any, sums: list[Any]) -> list[Any]:
            place = b.mul(number, _number(2 * LANES))
            some = b.sext(_load(b, b.gep(rows_at, [place]), ir.VectorType(_I8, 2 * LANES), 1), wide)
            both = b.mul(some, b.sext(_load(b, b.gep(query_at, [place]), ir.VectorType(_I16, 2 * LANES), 2), wide))
            return [b.add(sums[0], b.add(*(b.shuffle_vector(both, both, places) for places in odd_and_even)))]

        return _folded(b, _summed(b, values[3], [ir.Constant(_INTS, [0] * LANES)], step), b.add)

    return types.int32(rows, types.intp, query, types.intp), generate


def _folded(b: Any, vectors: list[Any], fold: Callable[[Any, Any], Any]) -> Any:
    """One number of all that some vectors have."""
    first = vectors[0]
    for other in vectors[1:]:
        first = fold(first, other)
    width = LANES
    while width > 1:
        width //= 2
        halves = (ir.Constant(ir.VectorType(_I32, width), list(range(i, i + width))) for i in (0, width))
        first = fold(*(b.shuffle_vector(first, first, half) for half in halves))
    return b.extract_element(first, ir.Constant(_I32, 0))


@intrinsic
@no_type_check
def level_products(_: Any, tail: Any, start: Any, planes: Any, words: Any, out: Any) -> Any:
    """out[lane] = twice the sum of levels, given by planes of bits, where tail[start + 16 word + lane] has bits."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        tail_at = _address(b, context, signature.args[0], values[0], values[1])
        planes_at = _address(b, context, signature.args[2], values[2], _number(0))
        eight = ir.VectorType(_I64, 8)
        spread, undefined = ir.Constant(ir.VectorType(_I32, 8), [0] * 8), ir.Constant(eight, ir.Undefined)
        count = cgutils.get_or_insert_function(b.module, ir.FunctionType(eight, [eight]), "llvm.ctpop.v8i64")

        def step(word: Any, sums: list[Any]) -> list[Any]:
            at = b.gep(tail_at, [b.mul(word, _number(LANES))])
            bits = [_load(b, b.gep(at, [_number(half)]), eight, 8) for half in (0, 8)]
            added = []
            for number, total in enumerate(sums):
                plane, half = divmod(number, 2)
                place = b.add(b.mul(values[3], _number(plane)), word)
                one = _load(b, b.gep(planes_at, [place]), _I64, 8)
                mask = b.shuffle_vector(b.insert_element(undefined, one, ir.Constant(_I32, 0)), undefined, spread)
                added.append(b.add(total, b.call(count, [b.and_(bits[half], mask)])))
            return added

        sums = _summed(b, values[3], [ir.Constant(eight, [0] * 8)] * 8, step)
        for half in (0, 1):
            one, two, four, eights = (
                b.shl(total, ir.Constant(eight, [power] * 8)) for power, total in enumerate(sums[half::2], 1)
            )
            levels = b.trunc(b.sub(b.add(b.add(one, two), four), eights), ir.VectorType(_I32, 8))
            _store(b, levels, _address(b, context, signature.args[4], values[4], _number(8 * half)))
        return context.get_dummy_value()

    return types.void(tail, types.intp, planes, types.intp, out), generate


@intrinsic
@no_type_check
def raise_tops(_: Any, tops: Any, start: Any, values: Any) -> Any:
    """tops[start + lane] = the larger one of it and values[lane]."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        at = _address(b, context, signature.args[0], values[0], values[1])
        before = _load(b, at, _FLOATS, 4)
        now = _load(b, _address(b, context, signature.args[2], values[2], _number(0)), _FLOATS, 4)
        _store(b, b.select(b.fcmp_ordered(">", now, before), now, before), at)
        return context.get_dummy_value()

    return types.void(tops, types.intp, values), generate


@intrinsic
@no_type_check
def largest(_: Any, tops: Any, start: Any) -> Any:
    """The largest of tops[start] to tops[start + 15], none of which is NaN."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        some = _load(b, _address(b, context, signature.args[0], values[0], values[1]), _FLOATS, 4)
        return _folded(b, [some], lambda low, high: b.select(b.fcmp_ordered(">", low, high), low, high))

    return types.float32(tops, types.intp), generate


@intrinsic
@no_type_check
def fetch(_: Any, array: Any, index: Any) -> Any:
    """Have the processor bring what array[index] and its neighbours are, which will be read soon."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        at = b.bitcast(_address(b, context, signature.args[0], values[0], values[1]), _I8.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [at.type, _I32, _I32, _I32])
        reading, soon, data = (ir.Constant(_I32, number) for number in (0, 3, 1))
        b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0"), [at, reading, soon, data])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate
