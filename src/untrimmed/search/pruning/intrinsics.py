"""What loops over codes and rows are made of: arithmetic on vectors of numbers, as LLVM has it.

It is spelled out, since numba widens small integers to 64 bits; LLVM turns it into what the processor has. numba keeps
what it compiled until the file of the loop changes, so `kernels.MADE_OF` names this one (see
tests/search/pruning/test_codes.py).
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

from untrimmed.search.pruning.products import LANES

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


def _lying_at(b: Any, address: Any) -> Any:
    """A pointer to bytes."""
    return b.inttoptr(address, _I8.as_pointer())


def _has(context: Any, feature: str) -> bool:
    """Whether the processor that is compiled for has it: numba keeps what it compiled for each kind apart."""
    return f"+{feature}" in context.codegen().magic_tuple()[2].split(",")


def _of_each_lane(context: Any, b: Any, codes: Any, query_at: Any, total: Any) -> Any:
    """total[lane] + the sum of codes[4 lane + k] * query[k] over k below 4, of codes without and a query with signs."""
    undefined, first = ir.Constant(_INTS, ir.Undefined), ir.Constant(_INTS, [0] * LANES)

    def spread(number: Any) -> Any:
        return b.shuffle_vector(b.insert_element(undefined, number, ir.Constant(_I32, 0)), undefined, first)

    four = _load(b, query_at, _I32, 1)
    if _has(context, "avx512vnni"):
        kind = ir.FunctionType(_INTS, [_INTS] * 3)
        products = cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        return b.call(products, [total, b.bitcast(codes, _INTS), spread(four)])
    shorts, wide = ir.VectorType(_I16, 2 * LANES), ir.VectorType(_I32, 2 * LANES)
    numbers = b.sext(b.bitcast(four, ir.VectorType(_I8, 4)), ir.VectorType(_I16, 4))
    pairs, low, eight = b.bitcast(codes, shorts), *(ir.Constant(shorts, [i] * 2 * LANES) for i in (255, 8))
    odd_and_even = [ir.Constant(_INTS, list(range(i, 2 * LANES, 2))) for i in (0, 1)]
    for one, other, part in ((0, 2, b.and_(pairs, low)), (1, 3, b.lshr(pairs, eight))):
        places = ir.Constant(ir.VectorType(_I32, 2), [one, other])
        pair = b.bitcast(spread(b.bitcast(b.shuffle_vector(numbers, numbers, places), _I32)), shorts)
        both = b.mul(b.zext(part, wide), b.sext(pair, wide))
        total = b.add(total, b.add(*(b.shuffle_vector(both, both, places) for places in odd_and_even)))
    return total


def _lane_products(bits: int) -> Any:
    """out[start + lane] = the sum of a code of this many bits, without a sign, times query[k], over all k of the lane.

    Codes lie at an address. Of 8 bits are four numbers of each lane side by side, of 4 bits eight: four in low halves
    of bytes, four in high ones. Numbers are a multiple of eight. An addition need not wait for the one before.
    """

    @intrinsic
    @no_type_check
    def products(_: Any, codes: Any, query: Any, numbers: Any, out: Any, start: Any) -> Any:
        def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
            codes_at = _lying_at(b, values[0])
            query_at = _address(b, context, signature.args[1], values[1], _number(0))
            of_bytes = ir.VectorType(_I8, 4 * LANES)

            def read(place: Any) -> Any:
                return _load(b, b.gep(codes_at, [b.mul(place, _number(4 * LANES))]), of_bytes, 1)

            def fours(eight: Any) -> list[Any]:
                if bits == 8:
                    return [read(b.add(b.mul(eight, _number(2)), _number(i))) for i in (0, 1)]
                both, low, shift = read(eight), *(ir.Constant(of_bytes, [i] * 4 * LANES) for i in (15, 4))
                return [b.and_(both, low), b.lshr(both, shift)]

            def step(eight: Any, sums: list[Any]) -> list[Any]:
                at = b.gep(query_at, [b.mul(eight, _number(8))])
                return [
                    _of_each_lane(context, b, some, b.gep(at, [_number(4 * i)]), total)
                    for i, (some, total) in enumerate(zip(fours(eight), sums, strict=True))
                ]

            zeros = [ir.Constant(_INTS, [0] * LANES)] * 2
            total = b.add(*_summed(b, b.sdiv(values[2], _number(8)), zeros, step))
            _store(b, total, _address(b, context, signature.args[3], values[3], values[4]))
            return context.get_dummy_value()

        return types.void(types.intp, query, types.intp, out, types.intp), generate

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
def whole_product(_: Any, row: Any, query: Any, steps: Any) -> Any:
    """The sum of the numbers of 8 bits that lie at an address times query[k] in 16 over so many steps of 32 numbers."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        row_at = _lying_at(b, values[0])
        query_at = _address(b, context, signature.args[1], values[1], _number(0))
        wide = ir.VectorType(_I32, 2 * LANES)
        odd_and_even = [ir.Constant(_INTS, list(range(i, 2 * LANES, 2))) for i in (0, 1)]

        def step(number: Any, sums: list[Any]) -> list[Any]:
            place = b.mul(number, _number(2 * LANES))
            some = b.sext(_load(b, b.gep(row_at, [place]), ir.VectorType(_I8, 2 * LANES), 1), wide)
            both = b.mul(some, b.sext(_load(b, b.gep(query_at, [place]), ir.VectorType(_I16, 2 * LANES), 2), wide))
            return [b.add(sums[0], b.add(*(b.shuffle_vector(both, both, places) for places in odd_and_even)))]

        return _folded(b, _summed(b, values[2], [ir.Constant(_INTS, [0] * LANES)], step), b.add)

    return types.int32(types.intp, query, types.intp), generate


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
def level_products(_: Any, tail: Any, planes: Any, words: Any, out: Any, start: Any) -> Any:
    """out[start + lane] = twice the sum of levels, given by planes of bits, where tail[16 word + lane] has bits.

    The words of a tail lie at an address.
    """

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        tail_at = b.inttoptr(values[0], _I64.as_pointer())
        planes_at = _address(b, context, signature.args[1], values[1], _number(0))
        eight = ir.VectorType(_I64, 8)
        spread, undefined = ir.Constant(ir.VectorType(_I32, 8), [0] * 8), ir.Constant(eight, ir.Undefined)
        count = cgutils.get_or_insert_function(b.module, ir.FunctionType(eight, [eight]), "llvm.ctpop.v8i64")

        def step(word: Any, sums: list[Any]) -> list[Any]:
            at = b.gep(tail_at, [b.mul(word, _number(LANES))])
            bits = [_load(b, b.gep(at, [_number(half)]), eight, 8) for half in (0, 8)]
            added = []
            for number, total in enumerate(sums):
                plane, half = divmod(number, 2)
                place = b.add(b.mul(values[2], _number(plane)), word)
                one = _load(b, b.gep(planes_at, [place]), _I64, 8)
                mask = b.shuffle_vector(b.insert_element(undefined, one, ir.Constant(_I32, 0)), undefined, spread)
                added.append(b.add(total, b.call(count, [b.and_(bits[half], mask)])))
            return added

        sums = _summed(b, values[2], [ir.Constant(eight, [0] * 8)] * 8, step)
        for half in (0, 1):
            one, two, four, eights = (
                b.shl(total, ir.Constant(eight, [power] * 8)) for power, total in enumerate(sums[half::2], 1)
            )
            levels = b.trunc(b.sub(b.add(b.add(one, two), four), eights), ir.VectorType(_I32, 8))
            place = b.add(values[4], _number(8 * half))
            _store(b, levels, _address(b, context, signature.args[3], values[3], place))
        return context.get_dummy_value()

    return types.void(types.intp, planes, types.intp, out, types.intp), generate


@intrinsic
@no_type_check
def add_parts(_: Any, sums: Any, less: Any, units: Any, lengths: Any, off: Any, found: Any, reach: Any, at: Any) -> Any:
    """found[lane]: a row's product by its head, body and tail; reach[at + lane]: what the true one is not above.

    sums: those of three parts, 16 lanes each, of which `less` is to be taken away. units: of head, body and tail, the
    last in units of a row's length, of which 16 lie at an address. off: what any row is off, and one for each length.
    """

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        undefined, first = (lambda kind: ir.Constant(kind, ir.Undefined)), ir.Constant(_INTS, [0] * LANES)

        def spread(number: Any, kind: Any) -> Any:
            only = b.insert_element(undefined(kind), number, ir.Constant(_I32, 0))
            return b.shuffle_vector(only, undefined(kind), first)

        parts = []
        for number in range(3):
            place = _address(b, context, signature.args[0], values[0], _number(number * LANES))
            minus = spread(b.extract_value(values[1], number), _INTS)
            whole = b.sitofp(b.sub(_load(b, place, _INTS, 4), minus), _FLOATS)
            parts.append(b.fmul(whole, spread(b.extract_value(values[2], number), _FLOATS), flags=("contract",)))
        length = _load(b, b.inttoptr(values[3], _F32.as_pointer()), _FLOATS, 4)
        tail = b.fmul(parts[2], length, flags=("contract",))
        product = b.fadd(b.fadd(parts[0], parts[1], flags=("contract",)), tail, flags=("contract",))
        each, of_length = (spread(b.extract_value(values[4], number), _FLOATS) for number in range(2))
        allowed = b.fadd(each, b.fmul(of_length, length, flags=("contract",)), flags=("contract",))
        _store(b, product, _address(b, context, signature.args[5], values[5], _number(0)))
        above = b.fadd(product, allowed, flags=("contract",))
        _store(b, above, _address(b, context, signature.args[6], values[6], values[7]))
        return context.get_dummy_value()

    return types.void(sums, less, units, types.intp, off, found, reach, types.intp), generate


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
def fetch(_: Any, address: Any) -> Any:
    """Have the processor bring what lies around an address, which will be read soon."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        at = _lying_at(b, values[0])
        kind = ir.FunctionType(ir.VoidType(), [at.type, _I32, _I32, _I32])
        reading, soon, data = (ir.Constant(_I32, number) for number in (0, 3, 1))
        b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0"), [at, reading, soon, data])
        return context.get_dummy_value()

    return types.void(types.intp), generate


def _number_at(kind: Any, found: Any) -> Any:
    """The number with this index of those that lie at an address."""

    @intrinsic
    @no_type_check
    def number(_: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
            return b.load(b.gep(b.inttoptr(values[0], kind.as_pointer()), [values[1]]))

        return found(types.intp, types.intp), generate

    return number


byte_at, int_at, float_at = _number_at(_I8, types.int8), _number_at(_I64, types.int64), _number_at(_F32, types.float32)
