"""Times the attention kernels on a GPU: `python -m kernels_pallas.attention.bench [--sweep] [--only=WORDS]`."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from kernels_pallas.attention import oracle, pallas_triton
from kernels_pallas.attention.config import NarrowConfig, PrefillConfig
from kernels_pallas.attention.kv_plane import KVPlane
from kernels_pallas.timing import Case, Work, main

# More than a GPU's second-level cache holds, so that every call reads from memory.
_COLD_BYTES = 300e6


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Attention of a model.

    Attributes:
      name: of the model.
      heads: query heads.
      kv_heads: heads of keys and values.
      head_dim: their size.
    """

    name: str
    heads: int
    kv_heads: int
    head_dim: int


SHAPES = (
    Shape(name="qwen3-30b-a3b", heads=32, kv_heads=4, head_dim=128),
    Shape(name="qwen3.6-35b-a3b", heads=16, kv_heads=2, head_dim=256),
)
NARROW_SWEEP = tuple(
    NarrowConfig(tile=tile, num_warps=warps, num_stages=stages)
    for tile, warps, stages in (
        (32, 4, 3), (32, 8, 3), (64, 4, 2), (64, 4, 3), (64, 8, 2), (64, 8, 3), (128, 4, 2), (128, 8, 2),
    )
)  # fmt: skip
PREFILL_SWEEP = tuple(
    PrefillConfig(tile=tile, heads=heads, num_warps=warps, num_stages=stages, whole=whole)
    for tile, heads, warps, stages, whole in (
        (64, 1, 4, 2, False), (64, 1, 4, 3, False), (128, 1, 4, 2, False), (32, 1, 8, 3, False),
        (64, 1, 8, 2, False), (64, 2, 8, 2, False), (64, 2, 8, 3, False), (128, 2, 8, 2, False),
        (32, 2, 8, 3, False), (64, 2, 8, 2, True),
    )
)  # fmt: skip


def _position_bytes(shape: Shape, cache: str) -> float:
    """Bytes of keys and values of one position."""
    value = {"f32": 4, "bf16": 2, "f16": 2, "q8_0": 1 + 2 / 32}[cache]
    return 2 * shape.kv_heads * shape.head_dim * value


def _random_plane(key: jax.Array, shape: Shape, cache: str, layers: int, slots: int, context: int) -> KVPlane:
    plane = jax.eval_shape(
        lambda: KVPlane.zeros(cache, layers, slots, shape.kv_heads, context, shape.head_dim)
    )
    if plane.scale is not None:
        codes = jax.random.randint(key, plane.data.shape, -127, 128, jnp.int8)
        return KVPlane(data=codes, scale=jnp.full(plane.scale.shape, 1 / 64, jnp.float16))
    return KVPlane(data=jax.random.normal(key, plane.data.shape, plane.data.dtype), scale=None)


def _setup(shape: Shape, cache: str, slots: int, context: int, num_tokens: int):
    """Random queries and planes, of as many layers as it takes to be cold."""
    layers = int(_COLD_BYTES / (_position_bytes(shape, cache) * context * slots)) + 1
    keys = jax.random.split(jax.random.key(0), 3)
    q = jax.random.normal(keys[0], (num_tokens, shape.heads, shape.head_dim), jnp.float32)
    planes = [_random_plane(key, shape, cache, layers, slots, context) for key in keys[1:]]
    return q, *planes, layers


def _error(out: jax.Array, q, k: KVPlane, v: KVPlane, slots: np.ndarray, positions: np.ndarray) -> float:
    rows = np.unique(np.linspace(0, len(slots) - 1, 8).astype(int))
    want = oracle.attention(np.asarray(q)[rows], k, v, 0, slots[rows], positions[rows])
    return float(np.abs(np.asarray(out)[rows] - want).max())


def narrow_case(
    shape: Shape, cache: str, tokens: int, same_slot: bool, context: int, config: NarrowConfig | None = None
) -> Case:
    """`tokens` at the end of a context, of one slot (a verify step) or each of its own (several sessions)."""
    slots = np.zeros(tokens, np.int32) if same_slot else np.arange(tokens, dtype=np.int32)
    positions = np.full(tokens, context - 1, np.int32) - (np.arange(tokens)[::-1] if same_slot else 0)
    positions = positions.astype(np.int32)
    kernel = functools.partial(pallas_triton.attention_narrow, config=config)

    def build():
        q, k, v, layers = _setup(shape, cache, 1 if same_slot else tokens, context, tokens)
        places = jnp.asarray(slots), jnp.asarray(positions)

        def step(q: jax.Array, constants: tuple, i: jax.Array) -> jax.Array:
            k, v, places = constants
            return q + 1e-3 * kernel(q, k, v, i % layers, *places)

        return step, q, (k, v, places)

    def error(q: jax.Array, constants: tuple) -> float:
        k, v, places = constants
        return _error(jax.jit(kernel)(q, k, v, jnp.int32(0), *places), q, k, v, slots, positions)

    streams = 1 if same_slot else tokens
    what = f"{tokens} tokens of {streams} slots" if tokens > 1 else "1 token"
    return Case(
        name=f"narrow {shape.name} {cache} context={context} {what}"
        + (f" {_sizes(config)}" if config else ""),
        build=build,
        work=Work(
            num_bytes=streams * context * _position_bytes(shape, cache),
            flop=4.0 * tokens * context * shape.heads * shape.head_dim,
        ),
        error=error,
    )


def prefill_case(
    shape: Shape, cache: str, tokens: int, context: int, config: PrefillConfig | None = None
) -> Case:
    """The last `tokens` of a prompt of `context` tokens."""
    positions = np.arange(context - tokens, context, dtype=np.int32)
    kernel = functools.partial(pallas_triton.attention_prefill, config=config)

    def build():
        q, k, v, layers = _setup(shape, cache, 1, context, tokens)

        def step(q: jax.Array, constants: tuple, i: jax.Array) -> jax.Array:
            k, v, positions = constants
            return q + 1e-3 * kernel(q, k, v, i % layers, jnp.int32(0), positions)

        return step, q, (k, v, jnp.asarray(positions))

    def error(q: jax.Array, constants: tuple) -> float:
        k, v, places = constants
        out = jax.jit(kernel)(q, k, v, jnp.int32(0), jnp.int32(0), places)
        return _error(out, q, k, v, np.zeros(tokens, np.int32), positions)

    return Case(
        name=f"prefill {shape.name} {cache} context={context} {tokens} tokens"
        + (f" {_sizes(config)}" if config else ""),
        build=build,
        work=Work(
            num_bytes=context * _position_bytes(shape, cache) + 8.0 * tokens * shape.heads * shape.head_dim,
            flop=4.0 * float((positions + 1).sum()) * shape.heads * shape.head_dim,
        ),
        error=error,
        calls=8,
    )


def _sizes(config: NarrowConfig | PrefillConfig) -> str:
    return " ".join(f"{field.name}={getattr(config, field.name)}" for field in dataclasses.fields(config))


def cases(sweep: bool) -> list[Case]:
    """All cases; with `sweep`, one narrow and one prefill case a model with every size of the kernels."""
    if sweep:
        narrow = [
            narrow_case(s, "bf16", 1, True, c, x) for s in SHAPES for c in (2048, 16384) for x in NARROW_SWEEP
        ]
        return narrow + [prefill_case(s, "bf16", 4096, 4096, x) for s in SHAPES for x in PREFILL_SWEEP]
    found = []
    for shape in SHAPES:
        for cache in ("bf16", "q8_0"):
            found += [narrow_case(shape, cache, 1, True, c) for c in (512, 1024, 2048, 4096, 8192, 16384)]
        found += [narrow_case(shape, "f16", 1, True, 4096), narrow_case(shape, "f32", 1, True, 4096)]
        found += [narrow_case(shape, "bf16", 4, True, 4096), narrow_case(shape, "bf16", 8, False, 4096)]
        found += [
            prefill_case(shape, "bf16", t, c) for t, c in ((64, 4096), (512, 512), (512, 16384), (4096, 4096))
        ]
        found += [prefill_case(shape, cache, 4096, 4096) for cache in ("f16", "q8_0")]
    return found


if __name__ == "__main__":
    main(cases)
