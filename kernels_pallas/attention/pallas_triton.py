"""Attention kernels for GPUs: Pallas, lowered through Triton for CUDA and ROCm.

Few tokens ("narrow"): the KV blocks of a token are dealt out to a fixed number of programs, each sums its own
online; a second, small kernel joins their partial sums in a fixed order. Prompts: one program per 64 tokens and
a few heads, running over the positions up to its last token.

Scores and sums are float32. A 16-bit plane is multiplied in its own type, a q8_0 plane is unpacked to float16.
The narrow kernel gives tensor cores the float32 operand in two pieces, so nothing of it is lost; the prefill
kernel rounds queries and probabilities to the plane's type, as flash attention does, unless told otherwise.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from kernels_pallas import dispatch
from kernels_pallas.attention.config import (
    BLOCK_TOKENS,
    NarrowConfig,
    PrefillConfig,
    narrow_config,
    prefill_config,
)
from kernels_pallas.attention.kv_plane import KV_BLOCK, KVPlane

# Finite, so that exp2(masked - maximum) is 0 and never NaN, also before the first visible position.
_MASKED = -1e30
_LOG2_E = 1.4426950408889634
_Q8_BLOCK = 32
_MIN_ROWS = 16  # of a tensor core operand


def _check(name: str, q: jax.Array, k: KVPlane, v: KVPlane) -> None:
    """Raises NotImplementedError for what the kernels cannot do."""
    head_dim = q.shape[-1]
    if head_dim & (head_dim - 1) or not 16 <= head_dim <= 256:
        raise NotImplementedError(f"{name}: head size {head_dim} is not a power of two from 16 to 256")
    for plane in (k, v):
        # The offset of an element is computed in 32 bits, with a sign, up to 2**32 bytes.
        if plane.data.dtype == jnp.int8 and 2**31 < plane.data.size <= 2**32:
            raise NotImplementedError(f"{name}: a q8_0 plane between 2 and 4 GiB")


def _compute_dtype(plane: KVPlane) -> jnp.dtype:
    return jnp.dtype(jnp.float16 if plane.scale is not None else plane.data.dtype)


def _value_bytes(k: KVPlane, v: KVPlane) -> int:
    return max(_compute_dtype(k).itemsize, _compute_dtype(v).itemsize)


def _dot(a: jax.Array, b: jax.Array, b_axis: int) -> jax.Array:
    """Float32 product over a's last axis and axis `b_axis` of b."""
    exact = a.dtype == jnp.float32
    return jax.lax.dot_general(
        a,
        b,
        (((1,), (b_axis,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if exact else jax.lax.Precision.DEFAULT,
        preferred_element_type=jnp.float32,
    )


def _pieces(x: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, ...]:
    """Float32 values as a sum of one or two arrays of `dtype`.

    The first piece is cut off by its bits: it is exact, and no compiler can drop the rounding between the two.
    """
    if dtype == jnp.float32:
        return (x,)
    keep = 0xFFFF0000 if dtype == jnp.bfloat16 else 0xFFFFE000
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) & jnp.uint32(keep)
    high = jax.lax.bitcast_convert_type(bits, jnp.float32)
    return high.astype(dtype), (x - high).astype(dtype)


def _load_tile(
    plane: KVPlane, row: tuple[jax.Array, ...], start: jax.Array, tile: int, seen: jax.Array | None
) -> jax.Array:
    """Positions `start..start+tile` of one head, `[tile, head_dim]` in the type that is multiplied.

    Args:
      plane: references into the cache.
      row: layer, slot and kv head.
      start: first position.
      tile: number of positions.
      seen: bool `[tile]` or None; positions that are not seen are not read and give 0.
    """

    def load(ref) -> jax.Array:
        at = ref.at[(*row, pl.ds(start, tile), slice(None))]
        if seen is None:
            return plgpu.load(at)
        mask = jnp.broadcast_to(seen[:, None], (tile, ref.shape[-1]))
        return plgpu.load(at, mask=mask, other=0 if ref.dtype == jnp.int8 else 0.0)

    values = load(plane.data)
    if plane.scale is None:
        return values
    scale = load(plane.scale)[:, :, None]
    values = values.astype(jnp.float16).reshape(tile, -1, _Q8_BLOCK)
    return (values * jnp.broadcast_to(scale, values.shape)).reshape(tile, -1)


def _online_step(carry: tuple[jax.Array, ...], scores: jax.Array, v: jax.Array, whole: bool):
    """Takes a tile into running maximum, total and weighted sum; `whole` keeps all bits of the weights."""
    top, total, out = carry
    new_top = jnp.maximum(top, jnp.max(scores, axis=1))
    keep = jnp.exp2(top - new_top)
    # A masked score gives exactly 0 as soon as one position is seen, and position 0 always is.
    p = jnp.exp2(scores - new_top[:, None])
    pieces = _pieces(p, v.dtype) if whole else (p.astype(v.dtype),)
    value = functools.reduce(jnp.add, (_dot(piece, v, 0) for piece in pieces))
    return new_top, total * keep + jnp.sum(p, axis=1), out * keep[:, None] + value


def _start(rows: int, head_dim: int) -> tuple[jax.Array, ...]:
    return (
        jnp.full((rows,), _MASKED, jnp.float32),
        jnp.zeros((rows,), jnp.float32),
        jnp.zeros((rows, head_dim), jnp.float32),
    )


def _narrow_kernel(
    # Inputs
    layer_ref,  # int32 [1]
    slots_ref,  # int32 [tokens]
    positions_ref,  # int32 [tokens]
    q_ref,  # float32 [tokens, kv_heads, group, head_dim]; group is a power of two
    k: KVPlane,  # [layers, slots, kv_heads, context, head_dim] and scales
    v: KVPlane,
    # Outputs: one partial sum a split
    top_ref,  # float32 [tokens, kv_heads, rows, splits], highest score
    total_ref,  # float32 [tokens, kv_heads, rows, splits], sum of exp2(score - top)
    out_ref,  # float32 [tokens, kv_heads, rows, splits, head_dim], not divided by total
    *,
    # Hyperparameters
    config: NarrowConfig,
):
    """One token, kv head and split."""
    token, head, split = pl.program_id(0), pl.program_id(1), pl.program_id(2)
    _, _, group, head_dim = q_ref.shape
    rows, tile = max(group, _MIN_ROWS), config.tile
    position = positions_ref[token]
    at = (layer_ref[0], slots_ref[token], head)
    last_block = jax.lax.div(position, KV_BLOCK)

    @pl.when(split <= last_block)
    def _():
        q = q_ref[token, head] * (head_dim**-0.5 * _LOG2_E)
        q = jnp.broadcast_to(q[None], (rows // group, group, head_dim)).reshape(rows, head_dim)
        q_pieces = _pieces(q, _compute_dtype(k))
        per_block = KV_BLOCK // tile
        my_last = jax.lax.div(last_block - split, config.num_splits)
        # Tiles after the position itself would change nothing; they are left out.
        unseen = jnp.where(
            split + my_last * config.num_splits == last_block,
            per_block - 1 - jax.lax.div(position - last_block * KV_BLOCK, tile),
            0,
        )

        def step(i: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            mine = jax.lax.div(i, per_block)
            block = split + mine * config.num_splits
            start = (block * per_block + (i - mine * per_block)) * tile
            seen = start + jnp.arange(tile, dtype=jnp.int32) <= position
            tile_k = _load_tile(k, at, start, tile, seen)
            tile_v = _load_tile(v, at, start, tile, seen)
            scores = functools.reduce(jnp.add, (_dot(piece, tile_k, 1) for piece in q_pieces))
            scores = jnp.where(jnp.broadcast_to(seen[None], scores.shape), scores, _MASKED)
            return _online_step(carry, scores, tile_v, whole=True)

        num_tiles = (my_last + 1) * per_block - unseen
        top, total, out = jax.lax.fori_loop(0, num_tiles, step, _start(rows, head_dim))
        row = jnp.arange(rows, dtype=jnp.int32) < group
        plgpu.store(top_ref.at[token, head, :, split], top, mask=row)
        plgpu.store(total_ref.at[token, head, :, split], total, mask=row)
        plgpu.store(out_ref.at[token, head, :, split, :], out, mask=jnp.broadcast_to(row[:, None], out.shape))


def _join_kernel(
    # Inputs
    positions_ref,  # int32 [tokens]
    top_ref,  # see _narrow_kernel
    total_ref,
    part_ref,
    # Outputs
    out_ref,  # float32 [tokens, heads, head_dim]
):
    """Joins the partial sums of one token and query head."""
    token, head, row = pl.program_id(0), pl.program_id(1), pl.program_id(2)
    splits, head_dim = part_ref.shape[3:]
    split = jnp.arange(splits, dtype=jnp.int32)
    used = split <= jax.lax.div(positions_ref[token], KV_BLOCK)
    top = plgpu.load(top_ref.at[token, head, row, :], mask=used, other=_MASKED)
    total = plgpu.load(total_ref.at[token, head, row, :], mask=used, other=0.0)
    used_wide = jnp.broadcast_to(used[:, None], (splits, head_dim))
    part = plgpu.load(part_ref.at[token, head, row, :, :], mask=used_wide, other=0.0)
    weight = jnp.exp2(top - jnp.max(top, axis=0))
    out = jnp.sum(part * weight[:, None], axis=0) / jnp.sum(total * weight, axis=0)
    out_ref[token, head * pl.num_programs(2) + row] = out


def attention_narrow(
    q: jax.Array,
    k: KVPlane,
    v: KVPlane,
    layer: jax.Array,
    slots: jax.Array,
    positions: jax.Array,
    *,
    config: NarrowConfig | None = None,
    interpret: bool = False,
) -> jax.Array:
    """A few tokens, each of any slot; see `reference.attention_narrow`.

    Args:
      q: float32 `[tokens, heads, head_dim]`.
      k: key cache.
      v: value cache.
      layer: int32 scalar.
      slots: int32 `[tokens]`.
      positions: int32 `[tokens]`.
      config: sizes; by default those for the head size, cache type and device.
      interpret: run without a GPU, for tests.

    Returns:
      float32 `[tokens, heads, head_dim]`.
    """
    _check("attention_narrow", q, k, v)
    num_tokens, num_heads, head_dim = q.shape
    kv_heads, context = k.data.shape[2:4]
    group = num_heads // kv_heads
    config = config or narrow_config(head_dim, _value_bytes(k, v), dispatch.is_rocm())
    rows = q.reshape(num_tokens, kv_heads, group, head_dim)
    padded = pl.next_power_of_2(group)
    if padded != group:
        rows = jnp.pad(rows, ((0, 0), (0, 0), (0, padded - group), (0, 0)))
    part_shape = (num_tokens, kv_heads, max(padded, _MIN_ROWS), config.num_splits)
    parts = pl.pallas_call(
        functools.partial(_narrow_kernel, config=config),
        out_shape=(
            jax.ShapeDtypeStruct(part_shape, jnp.float32),
            jax.ShapeDtypeStruct(part_shape, jnp.float32),
            jax.ShapeDtypeStruct((*part_shape, head_dim), jnp.float32),
        ),
        grid=(num_tokens, kv_heads, min(config.num_splits, context // KV_BLOCK)),
        compiler_params=plgpu.CompilerParams(num_warps=config.num_warps, num_stages=config.num_stages),
        interpret=interpret,
        name="attention_narrow",
    )(layer[None], slots, positions, rows, k, v)
    return pl.pallas_call(
        _join_kernel,
        out_shape=jax.ShapeDtypeStruct(q.shape, jnp.float32),
        grid=(num_tokens, kv_heads, group),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
        name="attention_join",
    )(positions, *parts)


def _prefill_kernel(
    # Inputs
    layer_ref,  # int32 [1]
    slot_ref,  # int32 [1]
    positions_ref,  # int32 [tokens], consecutive
    q_ref,  # float32 [tokens, heads, head_dim]
    k: KVPlane,  # [layers, slots, kv_heads, context, head_dim] and scales
    v: KVPlane,
    # Outputs
    out_ref,  # float32 [tokens, heads, head_dim]
    *,
    # Hyperparameters
    heads: int,  # query heads of a program, all of one kv head
    config: PrefillConfig,
):
    """BLOCK_TOKENS tokens of `heads` heads; row r is token r // heads."""
    num_tokens, num_heads, head_dim = q_ref.shape
    # The last tokens see most: they start first.
    token = (num_tokens // BLOCK_TOKENS - 1 - pl.program_id(0)) * BLOCK_TOKENS
    head = pl.program_id(1) * heads
    group, rows, tile = num_heads // k.data.shape[2], BLOCK_TOKENS * heads, config.tile
    at = (layer_ref[0], slot_ref[0], jax.lax.div(head, group))
    first = positions_ref[0] + token
    here = (pl.ds(token, BLOCK_TOKENS), pl.ds(head, heads), slice(None))
    q = q_ref[here].reshape(rows, head_dim) * (head_dim**-0.5 * _LOG2_E)
    q_pieces = _pieces(q, _compute_dtype(k)) if config.whole else (q.astype(_compute_dtype(k)),)
    position = first + jax.lax.div(jnp.arange(rows, dtype=jnp.int32), heads)

    def step(i: jax.Array, carry: tuple[jax.Array, ...], masked: bool) -> tuple[jax.Array, ...]:
        start = i * tile
        tile_k = _load_tile(k, at, start, tile, None)
        tile_v = _load_tile(v, at, start, tile, None)
        scores = functools.reduce(jnp.add, (_dot(piece, tile_k, 1) for piece in q_pieces))
        if masked:
            seen = (start + jnp.arange(tile, dtype=jnp.int32))[None] <= position[:, None]
            scores = jnp.where(seen, scores, _MASKED)
            # Weight 0 does not silence a NaN in a position that was never written.
            finite = jnp.abs(tile_v.astype(jnp.float32)) < jnp.inf
            tile_v = jnp.where(finite, tile_v, jnp.zeros_like(tile_v))
        return _online_step(carry, scores, tile_v, whole=config.whole)

    # Every row sees all of the first tiles; the others are compared position by position.
    num_whole = jax.lax.div(first + 1, tile)
    num_tiles = jax.lax.div(first + BLOCK_TOKENS - 1, tile) + 1
    carry = _start(rows, head_dim)
    carry = jax.lax.fori_loop(0, num_whole, functools.partial(step, masked=False), carry)
    _, total, out = jax.lax.fori_loop(num_whole, num_tiles, functools.partial(step, masked=True), carry)
    out_ref[here] = (out / total[:, None]).reshape(BLOCK_TOKENS, heads, head_dim)


def attention_prefill(
    q: jax.Array,
    k: KVPlane,
    v: KVPlane,
    layer: jax.Array,
    slot: jax.Array,
    positions: jax.Array,
    *,
    config: PrefillConfig | None = None,
    interpret: bool = False,
) -> jax.Array:
    """Tokens of one slot at consecutive positions; see `reference.attention_prefill`.

    Args:
      q: float32 `[tokens, heads, head_dim]`, tokens in multiples of BLOCK_TOKENS.
      k: key cache.
      v: value cache.
      layer: int32 scalar.
      slot: int32 scalar.
      positions: int32 `[tokens]`, consecutive.
      config: sizes; by default those for the head size, cache type and device.
      interpret: run without a GPU, for tests.

    Returns:
      float32 `[tokens, heads, head_dim]`.
    """
    _check("attention_prefill", q, k, v)
    num_tokens, num_heads, head_dim = q.shape
    if num_tokens % BLOCK_TOKENS:
        raise NotImplementedError(f"attention_prefill: {num_tokens} tokens, not a multiple of {BLOCK_TOKENS}")
    config = config or prefill_config(head_dim, _value_bytes(k, v), dispatch.is_rocm())
    group, heads = num_heads // k.data.shape[2], config.heads
    while group % heads:
        heads //= 2
    return pl.pallas_call(
        functools.partial(_prefill_kernel, heads=heads, config=config),
        out_shape=jax.ShapeDtypeStruct(q.shape, jnp.float32),
        grid=(num_tokens // BLOCK_TOKENS, num_heads // heads),
        compiler_params=plgpu.CompilerParams(num_warps=config.num_warps, num_stages=config.num_stages),
        interpret=interpret,
        name="attention_prefill",
    )(layer[None], slot[None], positions, q, k, v)
