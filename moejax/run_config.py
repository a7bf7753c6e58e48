"""How to run a model: the flags of a run as one frozen record."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Options that every program which loads a model shares.

    Attributes:
      model: path of the GGUF; any shard of a split file.
      ctx_size: positions of a session, tokens; 0 for the model's training context.
      ubatch_size: most prompt tokens of one prefill call.
      cache_type_k: f32, bf16, f16, q8_0; `auto` is f32 on a CPU and bf16 on a GPU.
      cache_type_v: likewise.
      routing_policy: a name from the registry.
      unpack_mib: most MiB for dense weights unpacked at load (CPU), None to decide by free memory.
      penalty_window: how many recent tokens penalties look at.
      strict: a kernel that falls back to the reference is an error.
    """

    model: str
    ctx_size: int = 4096
    ubatch_size: int = 512
    cache_type_k: str = "auto"
    cache_type_v: str = "auto"
    routing_policy: str = "topk"
    unpack_mib: int | None = None
    penalty_window: int = 64
    strict: bool = False
