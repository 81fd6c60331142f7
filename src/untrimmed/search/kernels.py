"""The loops over codes and rows that neither NumPy nor a library has: compiled by numba when they are first called.

Arithmetic on vectors of numbers is spelled out, since numba widens small integers to 64 bits; LLVM turns it into what
the processor has. Each result is one thread's, so that results are the same however many threads share the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, no_type_check

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from untrimmed.search.products import LANES

_FUZZ = np.float32(1e-6)  # of sums in float32
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


@intrinsic
@no_type_check
def _lane_products(_: Any, codes: Any, start: Any, query: Any, pairs: Any, out: Any) -> Any:
    """out[lane] = the sum of codes[start + 32 pair + 2 lane + i] * query[2 pair + i] over pairs and i of 0 and 1."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        codes_at = _address(b, context, signature.args[0], values[0], values[1])
        query_at = _address(b, context, signature.args[2], values[2], _number(0))
        wide, first, undefined = (
            ir.VectorType(_I32, 32),
            ir.Constant(_INTS, [0] * LANES),
            ir.Constant(_INTS, ir.Undefined),
        )

        def step(pair: Any, sums: list[Any]) -> list[Any]:
            code = _load(b, b.gep(codes_at, [b.mul(pair, _number(32))]), ir.VectorType(_I8, 32), 1)
            two = _load(b, b.gep(query_at, [b.mul(pair, _number(2))]), _I32, 2)
            spread = b.shuffle_vector(b.insert_element(undefined, two, ir.Constant(_I32, 0)), undefined, first)
            both = b.mul(b.sext(code, wide), b.sext(b.bitcast(spread, ir.VectorType(_I16, 32)), wide))
            odd_and_even = (ir.Constant(_INTS, list(range(i, 32, 2))) for i in (0, 1))
            return [b.add(sums[0], b.add(*(b.shuffle_vector(both, both, places) for places in odd_and_even)))]

        _store(b, *_summed(b, values[3], [first], step), _address(b, context, signature.args[4], values[4], _number(0)))
        return context.get_dummy_value()

    return types.void(codes, types.intp, query, types.intp, out), generate


@intrinsic
@no_type_check
def _row_products(_: Any, rows: Any, start: Any, width: Any, query: Any, out: Any) -> Any:
    """out[16 i + lane] = the sum of rows[start + i width + k] * query[k] over each 16th k from lane on; i < 4."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        rows_at = _address(b, context, signature.args[0], values[0], values[1])
        query_at = _address(b, context, signature.args[3], values[3], _number(0))
        out_at = _address(b, context, signature.args[4], values[4], _number(0))

        def step(number: Any, sums: list[Any]) -> list[Any]:
            place, added = b.mul(number, _number(LANES)), []
            query_part = _load(b, b.gep(query_at, [place]), _FLOATS, 4)
            for row, total in enumerate(sums):
                at = b.gep(rows_at, [b.add(place, b.mul(values[2], _number(row)))])
                part = b.fpext(_load(b, at, ir.VectorType(_HALF, LANES), 2), _FLOATS)
                product = b.fmul(part, query_part, flags=("contract",))
                added.append(b.fadd(product, total, flags=("contract",)))
            return added

        steps = b.sdiv(values[2], _number(LANES))
        for row, total in enumerate(_summed(b, steps, [ir.Constant(_FLOATS, [0.0] * LANES)] * 4, step)):
            _store(b, total, b.gep(out_at, [_number(LANES * row)]))
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp, query, out), generate


@intrinsic
@no_type_check
def _ones(_: Any, word: Any) -> Any:
    """How many bits of a word are set."""
    return types.uint64(types.uint64), lambda context, b, signature, values: b.ctpop(values[0])


@compiled(inline="always")
@no_type_check
def _weigh(codes, block, probe, margins, in_head, in_body, levels, found, reach):
    """found: the product of each row of a block by its code; reach: what the true one is not above."""
    head, head_scale, body, body_scale, tail, tail_scale, tail_error = codes
    head_query, body_query, planes, head_unit, body_unit, tail_unit, level_sum = probe
    head_margin, body_margin, tail_margin, level_margin = margins
    head_pairs, body_pairs = len(head_query) // 2, len(body_query) // 2
    _lane_products(head, block * head_pairs * 2 * LANES, head_query, head_pairs, in_head)
    _lane_products(body, block * body_pairs * 2 * LANES, body_query, body_pairs, in_body)
    for lane in range(LANES):
        levels[lane] = -level_sum
    for word in range(tail.shape[1]):
        one, two, four, eight = planes[0, word], planes[1, word], planes[2, word], planes[3, word]
        for lane in range(LANES):
            bits = tail[block, word, lane]
            levels[lane] += np.int64(
                (_ones(bits & one) << np.uint64(1))
                + (_ones(bits & two) << np.uint64(2))
                + (_ones(bits & four) << np.uint64(3))
                - (_ones(bits & eight) << np.uint64(4))
            )
    scale_h, scale_b = head_unit * head_scale[block], body_unit * body_scale[block]
    rounding = np.float32(np.sqrt(head_margin * head_scale[block] ** 2 + body_margin * body_scale[block] ** 2))
    turning = np.float32(np.sqrt(tail_margin * tail_error[block] ** 2 + level_margin))
    for lane in range(LANES):
        length = tail_scale[block, lane]
        product = in_head[lane] * scale_h + in_body[lane] * scale_b + length * tail_unit * np.float32(levels[lane])
        found[lane], reach[lane] = product, product + rounding + turning * length


@compiled()
@no_type_check
def weigh_rows(codes, probe, margins, start, stop, found, reach):
    """found[16 i + lane], reach[16 i + lane]: of the rows of each block i, see `_weigh`."""
    in_head, in_body, levels = np.empty(LANES, np.int32), np.empty(LANES, np.int32), np.empty(LANES, np.int64)
    for block in range(start, stop):
        at = block * LANES
        _weigh(codes, block, probe, margins, in_head, in_body, levels, found[at:], reach[at:])


@compiled(fastmath={"nnan", "nsz", "contract"})
@no_type_check
def best_windows(found, reach, bounds, weights, inside, start, stop, best, most):
    """best[i]: the best window of rows bounds[i, 0] to bounds[i, 1] of products; most[i]: no window is above it.

    Weights of a window add up to one: its mean is off by no more than the product that is off most.
    """
    half, end = len(weights) // 2, len(found)
    for video in range(start, stop):
        first, behind = bounds[video]
        mean = np.zeros(behind - first, np.float32)
        for place in range(len(weights)):
            weight, shift = weights[place], place - half
            before, after = max(first, -shift), min(behind, end - shift)
            summed, added = mean[before - first : after - first], found[before + shift : after + shift]
            for row in range(after - before):
                summed[row] += weight * added[row]
        whole, off = inside[first:behind], reach[first:behind] - found[first:behind]
        best[video] = (mean / whole).max()
        most[video] = best[video] + off.max()


@compiled()
@no_type_check
def scan_codes(codes, first, probe, margins, videos, start, stop, best, bound, slack):
    """Of video videos[i] best[i]: its best row by codes; bound[i]: no row's product is above it.

    slack[i]: no row has more between its product by codes and what the true one is not above.
    """
    in_head, in_body, levels = np.empty(LANES, np.int32), np.empty(LANES, np.int32), np.empty(LANES, np.int64)
    found, reach = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    top, most, far = np.empty(LANES, np.float32), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    for place in range(start, stop):
        top[:] = most[:] = far[:] = -np.inf
        for block in range(first[videos[place]], first[videos[place] + 1]):
            _weigh(codes, block, probe, margins, in_head, in_body, levels, found, reach)
            for lane in range(LANES):
                top[lane] = found[lane] if found[lane] > top[lane] else top[lane]
                most[lane] = reach[lane] if reach[lane] > most[lane] else most[lane]
                off = reach[lane] - found[lane]
                far[lane] = off if off > far[lane] else far[lane]
        best[place], bound[place], slack[place] = top.max(), most.max(), far.max()


@compiled()
@no_type_check
def score_rows(codes, first, probe, margins, rows, width, first_row, query, videos, start, stop, best):
    """best[i]: the best row of video videos[i] by products of float16 rows, given by their bits, with a query.

    Of four rows that stand together, products are taken if the codes leave it open whether one of them is the best.
    """
    in_head, in_body, levels = np.empty(LANES, np.int32), np.empty(LANES, np.int32), np.empty(LANES, np.int64)
    found, partial, last = np.empty(LANES, np.float32), np.empty(4 * LANES, np.float32), len(rows) // width - 4
    reach = np.empty(LANES, np.float32)
    for place in range(start, stop):
        block, behind = first[videos[place]], first[videos[place] + 1]
        begin, end = first_row[videos[place]], first_row[videos[place] + 1]
        if len(reach) < (behind - block) * LANES:
            reach = np.empty((behind - block) * LANES, np.float32)
        least = top = np.float32(-np.inf)
        for number in range(behind - block):
            _weigh(codes, block + number, probe, margins, in_head, in_body, levels, found, reach[number * LANES :])
            for lane in range(LANES):
                least = max(least, 2 * found[lane] - reach[number * LANES + lane])
        for number in range(0, end - begin, 4):
            if max(reach[number], reach[number + 1], reach[number + 2], reach[number + 3]) >= least - _FUZZ:
                row = min(begin + number, last)
                _row_products(rows, row * width, width, query, partial)
                for i in range(max(0, begin - row), min(4, end - row)):
                    top = max(top, _total(partial, i * LANES))
                least = max(least, top)
        best[place] = top


@compiled()
@no_type_check
def _total(partial, start):
    step = LANES // 2
    while step:
        for lane in range(start, start + step):
            partial[lane] += partial[lane + step]
        step //= 2
    return partial[start]
