"""Gated delta rule kernels for GPUs: Pallas, lowered through Triton for CUDA and ROCm.

A program owns some value dims of one head's state; these never meet those of other programs. Few tokens
("narrow"): the program takes the tokens of one slot in order, in float32 without tensor cores. Prompts, in blocks
of 64 tokens: a first kernel does for every block and head what needs no state, a second one carries the state
from block to block. The triangular system of the delta rule is solved by inverting its matrix block by block,
which stays as tame as substitution (powers of the matrix, as in a Neumann series, do not).

States are written where they stand: the plane is input and output.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from kernels_pallas import dispatch
from kernels_pallas.gated_delta_net.config import NarrowConfig, Precision, PrefillConfig, prefill_config
from kernels_pallas.gated_delta_net.recurrent_plane import RecurrentPlane
from kernels_pallas.gated_delta_net.reference import PREFILL_BLOCK

# The triangular matrix is inverted row by row in diagonal blocks of this size, then by doubling.
_SOLVE_BLOCK = 16


def _value_tile(name: str, head_dim: int, wanted: int) -> int:
    if head_dim & (head_dim - 1) or head_dim < 16:
        raise NotImplementedError(f"{name}: head size {head_dim} is not a power of two from 16")
    return min(wanted, head_dim)


def _read_state(plane_ref, at: tuple, position: jax.Array, columns) -> jax.Array:
    """Some columns of the state after `position` tokens, `[head_dim, value_tile]`.

    Args:
      plane_ref: see the kernels.
      at: layer, slot and head.
      position: number of tokens.
      columns: a `pl.ds` of value dims.

    Returns:
      float32.
    """
    layer, slot, head = at
    entry = jax.lax.rem(position, plane_ref.shape[2])
    state = plane_ref[layer, slot, entry, head, :, columns]
    # A slot that starts again still holds its last session's state in entry 0.
    return jnp.where(position > 0, state, 0.0)


def _write_state(plane_ref, at: tuple, position: jax.Array, columns, state: jax.Array) -> None:
    layer, slot, head = at
    plane_ref[layer, slot, jax.lax.rem(position, plane_ref.shape[2]), head, :, columns] = state


def _narrow_kernel(
    # Inputs
    layer_ref,  # int32 [1]
    slots_ref,  # int32 [tokens]
    positions_ref,  # int32 [tokens]
    mask_ref,  # bool [tokens]
    q_ref,  # float32 [tokens, v_heads, head_dim]
    k_ref,  # as q
    v_ref,  # as q
    log_decay_ref,  # float32 [tokens, v_heads]
    beta_ref,  # float32 [tokens, v_heads]
    _,  # the plane, read through its output
    # Outputs
    out_ref,  # float32 [tokens, v_heads, head_dim]
    plane_ref,  # float32 [layers, slots, ring, v_heads, head_dim, head_dim]
    *,
    # Hyperparameters
    config: NarrowConfig,
    barrier: bool,  # a state may be read again after it was stored: wait for all threads in between
):
    """All tokens of the slot of token `program_id(0)`, if that is its first; one head, some value dims."""
    num_tokens, _, head_dim = q_ref.shape
    first, head = pl.program_id(0), pl.program_id(1)
    columns = pl.ds(pl.program_id(2) * config.value_tile, config.value_tile)
    slot = slots_ref[first]
    at = (layer_ref[0], slot, head)

    def count_slot(i: jax.Array, count: jax.Array) -> jax.Array:
        return count + (slots_ref[i] == slot).astype(jnp.int32)

    def advance(i: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Token i; the carry is a state and the position that it belongs to, or -1."""
        state, held = carry
        position, live = positions_ref[i], mask_ref[i]
        state = jax.lax.cond(
            position == held, lambda: state, lambda: _read_state(plane_ref, at, position, columns)
        )
        k, v = k_ref[i, head, :], v_ref[i, head, columns]
        state = state * jnp.exp(log_decay_ref[i, head])
        delta = beta_ref[i, head] * (v - jnp.sum(state * k[:, None], axis=0))
        state = state + k[:, None] * delta[None]
        out_ref[i, head, columns] = jnp.sum(state * q_ref[i, head, :][:, None], axis=0)

        @pl.when(live)
        def _():
            _write_state(plane_ref, at, position + 1, columns, state)
            if barrier:
                plgpu.debug_barrier()

        return state, jnp.where(live, position + 1, -1)

    @pl.when(jax.lax.fori_loop(0, first, count_slot, jnp.int32(0)) == 0)
    def _():
        def step(i: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return jax.lax.cond(slots_ref[i] == slot, lambda: advance(i, carry), lambda: carry)

        empty = jnp.zeros((head_dim, config.value_tile), jnp.float32)
        jax.lax.fori_loop(first, num_tokens, step, (empty, jnp.int32(-1)))


def delta_net_narrow(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    plane: RecurrentPlane,
    layer: jax.Array,
    slots: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    *,
    config: NarrowConfig | None = None,
    interpret: bool = False,
) -> tuple[jax.Array, RecurrentPlane]:
    """A few tokens, each of any slot; arguments and results as `reference.delta_net_narrow`."""
    config = config or NarrowConfig()
    num_tokens, num_heads, head_dim = q.shape
    tile = _value_tile("delta_net_narrow", head_dim, config.value_tile)
    config = dataclasses.replace(config, value_tile=tile)
    out, data = pl.pallas_call(
        functools.partial(_narrow_kernel, config=config, barrier=not interpret),
        out_shape=(
            jax.ShapeDtypeStruct(q.shape, jnp.float32),
            jax.ShapeDtypeStruct(plane.data.shape, jnp.float32),
        ),
        grid=(num_tokens, num_heads, head_dim // tile),
        input_output_aliases={9: 1},
        compiler_params=plgpu.CompilerParams(num_warps=config.num_warps, num_stages=1),
        interpret=interpret,
        name="delta_net_narrow",
    )(layer[None], slots, positions, mask, q, k, v, log_decay, beta, plane.data)
    return out, RecurrentPlane(data=data)


def _pieces(x: jax.Array, precision: Precision) -> tuple[jax.Array, ...]:
    """Float32 values as a sum of bfloat16 arrays, largest first; float32 itself for "ieee".

    Pieces are cut off by their bits, so they are exact and no compiler can merge them again.
    """
    if precision == "ieee":
        return (x,)
    pieces = []
    for _ in range(3 if precision == "bf16x6" else 2):
        bits = jax.lax.bitcast_convert_type(x, jnp.uint32) & jnp.uint32(0xFFFF0000)
        piece = jax.lax.bitcast_convert_type(bits, jnp.float32)
        pieces.append(piece.astype(jnp.bfloat16))
        x = x - piece
    return tuple(pieces)


def _dot(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...], axes: tuple[int, int] = (1, 0)) -> jax.Array:
    """Float32 product of two matrices in pieces over the given axes, smallest products first."""
    exact = a[0].dtype == jnp.float32
    pairs = [(i, j) for i in range(len(a)) for j in range(len(b)) if i + j < len(a)]
    products = (
        jax.lax.dot_general(
            a[i],
            b[j],
            (((axes[0],), (axes[1],)), ((), ())),
            precision=jax.lax.Precision.HIGHEST if exact else jax.lax.Precision.DEFAULT,
            preferred_element_type=jnp.float32,
        )
        for i, j in sorted(pairs, key=sum, reverse=True)
    )
    return functools.reduce(jnp.add, products)


def _inverse(coupling: jax.Array, precision: Precision) -> jax.Array:
    """(I + coupling)^-1 of a strictly lower triangular `[PREFILL_BLOCK, PREFILL_BLOCK]` matrix."""
    size, num = PREFILL_BLOCK, PREFILL_BLOCK // _SOLVE_BLOCK
    index = functools.partial(jax.lax.broadcasted_iota, jnp.int32)
    shape = (num, _SOLVE_BLOCK, num, _SOLVE_BLOCK)
    on_diagonal = index(shape, 0) == index(shape, 2)
    blocks = jnp.sum(jnp.where(on_diagonal, coupling.reshape(shape), 0.0), axis=2)
    row, column = index(blocks.shape, 1), index(blocks.shape, 2)

    def solve_row(i: jax.Array, inverse: jax.Array) -> jax.Array:
        """Row i of every diagonal block, from the rows above it."""
        factors = jnp.sum(jnp.where(row == i, blocks, 0.0), axis=1)
        known = jnp.sum(factors[:, :, None] * inverse, axis=1)
        return jnp.where(row == i, inverse - known[:, None, :], inverse)

    start = jnp.where(row == column, 1.0, 0.0)
    small = jax.lax.fori_loop(1, _SOLVE_BLOCK, solve_row, start)
    inverse = jnp.where(on_diagonal, jnp.broadcast_to(small[:, :, None, :], shape), 0.0).reshape(size, size)
    row, column = index((size, size), 0), index((size, size), 1)
    width = _SOLVE_BLOCK
    while width < size:
        # [[A, 0], [C, B]]^-1 = [[A^-1, 0], [-B^-1 C A^-1, B^-1]] for every pair of neighbours.
        pair = (row // (2 * width) == column // (2 * width)) & (row // width != column // width)
        below = _pieces(jnp.where(pair, coupling, 0.0), precision)
        known = _pieces(inverse, precision)
        inverse = inverse - _dot(_pieces(_dot(known, below), precision), known)
        width *= 2
    return inverse


def _prepare_kernel(
    # Inputs
    num_tokens_ref,  # int32 [1]
    q_ref,  # float32 [tokens, v_heads, head_dim]
    k_ref,  # as q
    v_ref,  # as q
    log_decay_ref,  # float32 [tokens, v_heads]
    beta_ref,  # float32 [tokens, v_heads]
    # Outputs
    total_ref,  # float32 [v_heads, tokens], log decay since the block's start
    scores_ref,  # float32 [v_heads, tokens, PREFILL_BLOCK], decayed q.k of a token and those up to it
    values_ref,  # float32 [v_heads, tokens, head_dim], U: deltas if the block's first state were 0
    weights_ref,  # float32 [v_heads, tokens, head_dim], W: deltas are U - W (state)
    *,
    # Hyperparameters
    config: PrefillConfig,
):
    """What a block can compute without the state: one block and head."""
    block, head, precision = pl.program_id(0), pl.program_id(1), config.precision
    size, num_tokens = PREFILL_BLOCK, num_tokens_ref[0]
    rows = pl.ds(block * size, size)

    @pl.when(block * size < num_tokens)
    def _():
        valid = block * size + jnp.arange(size, dtype=jnp.int32) < num_tokens
        row = jax.lax.broadcasted_iota(jnp.int32, (size, size), 0)
        column = jax.lax.broadcasted_iota(jnp.int32, (size, size), 1)
        beta = jnp.where(valid, beta_ref[rows, head], 0.0)[:, None]
        log_decay = jnp.where(valid, log_decay_ref[rows, head], 0.0)
        total = jnp.sum(jnp.where(column <= row, log_decay[None], 0.0), axis=1)
        total_ref[head, rows] = total
        # exp only of what is kept: above the diagonal the exponent is positive and may overflow.
        difference = jnp.where(column <= row, total[:, None] - total[None], 0.0)
        decay = jnp.where(column <= row, jnp.exp(difference), 0.0)

        k = jnp.where(valid[:, None], k_ref[rows, head, :], 0.0)
        keys = _pieces(k, precision)
        queries = _pieces(jnp.where(valid[:, None], q_ref[rows, head, :], 0.0), precision)
        scores_ref[head, rows, :] = decay * _dot(queries, keys, (1, 1))
        coupling = jnp.where(column < row, beta * decay * _dot(keys, keys, (1, 1)), 0.0)
        inverse = _pieces(_inverse(coupling, precision), precision)
        weights_ref[head, rows, :] = _dot(inverse, _pieces(beta * jnp.exp(total)[:, None] * k, precision))
        v = jnp.where(valid[:, None], v_ref[rows, head, :], 0.0)
        values_ref[head, rows, :] = _dot(inverse, _pieces(beta * v, precision))


def _prefill_kernel(
    # Inputs
    layer_ref,  # int32 [1]
    slot_ref,  # int32 [1]
    start_ref,  # int32 [1]
    num_tokens_ref,  # int32 [1]
    keep_history_ref,  # bool [1]
    q_ref,  # float32 [tokens, v_heads, head_dim]
    k_ref,  # as q
    total_ref,  # see _prepare_kernel
    scores_ref,
    values_ref,
    weights_ref,
    _,  # the plane, read through its output
    # Outputs
    out_ref,  # float32 [tokens, v_heads, head_dim]
    plane_ref,  # float32 [layers, slots, ring, v_heads, head_dim, head_dim]
    *,
    # Hyperparameters
    config: PrefillConfig,
):
    """One head and some value dims, block after block."""
    head, size, precision = pl.program_id(0), PREFILL_BLOCK, config.precision
    columns = pl.ds(pl.program_id(1) * config.value_tile, config.value_tile)
    at = (layer_ref[0], slot_ref[0], head)
    start, num_tokens = start_ref[0], num_tokens_ref[0]
    token = jnp.arange(size, dtype=jnp.int32)
    reach = plane_ref.shape[2] - 1
    oldest = jnp.where(keep_history_ref[0], jnp.maximum(num_tokens - reach, 1), num_tokens)

    def advance(block: jax.Array, state: jax.Array) -> jax.Array:
        rows, before = pl.ds(block * size, size), block * size
        valid = (before + token < num_tokens)[:, None]
        total, pieces = total_ref[head, rows], _pieces(state, precision)
        delta = values_ref[head, rows, columns] - _dot(_pieces(weights_ref[head, rows, :], precision), pieces)
        deltas = _pieces(delta, precision)
        queries = _pieces(jnp.where(valid, q_ref[rows, head, :], 0.0), precision)
        out = jnp.exp(total)[:, None] * _dot(queries, pieces)
        out_ref[rows, head, columns] = out + _dot(_pieces(scores_ref[head, rows, :], precision), deltas)
        k = jnp.where(valid, k_ref[rows, head, :], 0.0)

        def store_state(count: jax.Array, _: jax.Array) -> jax.Array:
            """The state after `count` tokens of the block, by one expression wherever a prompt ends."""
            last = jnp.sum(jnp.where(token == count - 1, total, 0.0))
            used = token < count
            weight = jnp.where(used, jnp.exp(jnp.where(used, last - total, 0.0)), 0.0)
            added = _dot(_pieces(k * weight[:, None], precision), deltas, (0, 0))
            new = jnp.exp(last) * state + added

            @pl.when(before + count >= oldest)
            def _():
                _write_state(plane_ref, at, start + before + count, columns, new)

            return new

        last = jnp.minimum(num_tokens - before, size)
        first = jnp.minimum(jnp.maximum(oldest - before, 1), last)
        return jax.lax.fori_loop(first, last + 1, store_state, state)

    num_blocks = jax.lax.div(num_tokens + (size - 1), size)
    state = _read_state(plane_ref, at, start, columns)
    jax.lax.fori_loop(0, num_blocks, advance, state)

    def clear(block: jax.Array, _: None) -> None:
        out_ref[pl.ds(block * size, size), head, columns] = jnp.zeros((size, config.value_tile), jnp.float32)

    jax.lax.fori_loop(num_blocks, q_ref.shape[0] // size, clear, None)


def delta_net_prefill(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    plane: RecurrentPlane,
    layer: jax.Array,
    slot: jax.Array,
    start: jax.Array,
    num_tokens: jax.Array,
    keep_history: jax.Array,
    *,
    config: PrefillConfig | None = None,
    interpret: bool = False,
) -> tuple[jax.Array, RecurrentPlane]:
    """Tokens of a slot in blocks of PREFILL_BLOCK; arguments and results as `reference.delta_net_prefill`.

    Takes several blocks at once too, with the bits of one call a block; `keep_history` then counts for the
    end of the last.
    """
    config = config or prefill_config(dispatch.is_rocm())
    num_rows, num_heads, head_dim = q.shape
    if num_rows % PREFILL_BLOCK:
        raise NotImplementedError(f"delta_net_prefill: {num_rows} tokens, not a multiple of {PREFILL_BLOCK}")
    tile = _value_tile("delta_net_prefill", head_dim, config.value_tile)
    config = dataclasses.replace(config, value_tile=tile)

    def floats(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    parts = pl.pallas_call(
        functools.partial(_prepare_kernel, config=config),
        out_shape=(
            floats(num_heads, num_rows),
            floats(num_heads, num_rows, PREFILL_BLOCK),
            floats(num_heads, num_rows, head_dim),
            floats(num_heads, num_rows, head_dim),
        ),
        grid=(num_rows // PREFILL_BLOCK, num_heads),
        compiler_params=plgpu.CompilerParams(num_warps=config.prepare_warps, num_stages=1),
        interpret=interpret,
        name="delta_net_prepare",
    )(num_tokens[None], q, k, v, log_decay, beta)
    out, data = pl.pallas_call(
        functools.partial(_prefill_kernel, config=config),
        out_shape=(floats(*q.shape), floats(*plane.data.shape)),
        grid=(num_heads, head_dim // tile),
        input_output_aliases={11: 1},
        compiler_params=plgpu.CompilerParams(num_warps=config.num_warps, num_stages=1),
        interpret=interpret,
        name="delta_net_prefill",
    )(
        layer[None], slot[None], start[None], num_tokens[None], keep_history[None],
        q, k, *parts, plane.data,
    )  # fmt: skip
    return out, RecurrentPlane(data=data)
