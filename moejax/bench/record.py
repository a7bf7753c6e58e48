"""One result as a row: llama-bench's columns in its order, then ours, then the plan.

Columns of llama-bench that mean nothing here have the value that llama-bench writes when the option is not used, so
that programs which read its results read these.
"""

import datetime
import json
from typing import Any

from moejax.bench.cases import BenchCase
from moejax.bench.host_facts import HostFacts
from moejax.bench.limit import MemoryLimit
from moejax.bench.measure import Samples
from moejax.bench.model_facts import ModelFacts
from moejax.plan import Plan

Row = dict[str, Any]

# Column -> SQL type; the order is the order of the columns.
COLUMNS: dict[str, str] = {
    "build_commit": "TEXT",
    "build_number": "INTEGER",
    "cpu_info": "TEXT",
    "gpu_info": "TEXT",
    "backends": "TEXT",
    "model_filename": "TEXT",
    "model_type": "TEXT",
    "model_size": "INTEGER",
    "model_n_params": "INTEGER",
    "n_batch": "INTEGER",
    "n_ubatch": "INTEGER",
    "n_threads": "INTEGER",
    "cpu_mask": "TEXT",
    "cpu_strict": "INTEGER",
    "poll": "INTEGER",
    "type_k": "TEXT",
    "type_v": "TEXT",
    "n_gpu_layers": "INTEGER",
    "n_cpu_moe": "INTEGER",
    "split_mode": "TEXT",
    "main_gpu": "INTEGER",
    "no_kv_offload": "INTEGER",
    "flash_attn": "INTEGER",
    "devices": "TEXT",
    "tensor_split": "TEXT",
    "tensor_buft_overrides": "TEXT",
    "load_mode": "TEXT",
    "embeddings": "INTEGER",
    "no_op_offload": "INTEGER",
    "no_host": "INTEGER",
    "fit_target": "INTEGER",
    "fit_min_ctx": "INTEGER",
    "n_prompt": "INTEGER",
    "n_gen": "INTEGER",
    "n_depth": "INTEGER",
    "test_time": "TEXT",
    "avg_ns": "INTEGER",
    "stddev_ns": "INTEGER",
    "avg_ts": "REAL",
    "stddev_ts": "REAL",
    # Ours.
    "host_tier": "TEXT",
    "slab_mib": "INTEGER",
    "pool_mib": "INTEGER",
    "expert_placement": "TEXT",
    "residency_policy": "TEXT",
    "routing_policy": "TEXT",
    "spec_type": "TEXT",
    "draft_n_max": "INTEGER",
    "n_parallel": "INTEGER",
    "expert_hit_rate": "REAL",
    "expert_mib_per_token": "REAL",
    "stall_ms_per_token": "REAL",
    "acceptance": "REAL",
    "kernels": "TEXT",
    "ctx_size": "INTEGER",
    "moejax_version": "TEXT",
    "jax_version": "TEXT",
    "xla_flags_hash": "TEXT",
    "weights_mib_per_token": "REAL",
    "memory_gb_per_s": "REAL",
    "limit_ts": "REAL",
    "trace": "TEXT",
    "plan": "TEXT",
}


def _theirs(plan: Plan, model: ModelFacts, host: HostFacts, record: Row) -> Row:
    layers = len(plan.description.config.layers)
    return {
        "build_commit": host.build_commit,
        "build_number": 0,
        "cpu_info": host.cpu,
        "gpu_info": host.gpus,
        "backends": host.backend,
        "model_filename": model.filename,
        "model_type": model.type,
        "model_size": model.num_bytes,
        "model_n_params": model.num_params,
        "n_batch": plan.ubatch_size,
        "n_ubatch": plan.ubatch_size,
        "n_threads": host.num_threads,
        "cpu_mask": "0x0",
        "cpu_strict": False,
        "poll": 0,
        "type_k": plan.type_k,
        "type_v": plan.type_v,
        "n_gpu_layers": 0 if host.backend == "CPU" else layers,
        "n_cpu_moe": record.get("n_cpu_moe", 0),
        "split_mode": record.get("split_mode", "none"),
        "main_gpu": 0,
        "no_kv_offload": False,
        "flash_attn": -1,
        "devices": "auto",
        "tensor_split": "0.00",
        "tensor_buft_overrides": "none",
        "load_mode": "mmap",
        "embeddings": False,
        "no_op_offload": 0,
        "no_host": False,
        "fit_target": 0,
        "fit_min_ctx": 0,
    }


def _ours(plan: Plan, host: HostFacts, record: Row, limit: MemoryLimit, case: BenchCase, trace: str) -> Row:
    generates = case.n_gen > 0 and case.n_prompt == 0
    return {
        "host_tier": record.get("host_tier", "none"),
        "slab_mib": record.get("slab_mib", 0),
        "pool_mib": record.get("pool_mib", 0),
        "expert_placement": record["expert_placement"],
        "residency_policy": record["cache_policy"],
        "routing_policy": record["routing_policy"],
        "spec_type": record["spec_type"],
        "draft_n_max": record.get("draft_n_max", 0),
        "n_parallel": plan.slots,
        # Without a cache, or without drafts, there is nothing to count.
        "expert_hit_rate": None,
        "expert_mib_per_token": None,
        "stall_ms_per_token": None,
        "acceptance": None,
        "kernels": record["kernels"],
        "ctx_size": plan.context,
        "moejax_version": record["versions"]["moejax"],
        "jax_version": record["versions"]["jax"],
        "xla_flags_hash": host.xla_flags_hash,
        "weights_mib_per_token": round(limit.token_bytes / 2**20, 3),
        "memory_gb_per_s": round(limit.bytes_per_second / 1e9, 3),
        "limit_ts": round(limit.tokens_per_second, 3) if generates else None,
        "trace": trace,
        "plan": record,
    }


def make_record(
    samples: Samples,
    plan: Plan,
    model: ModelFacts,
    host: HostFacts,
    limit: MemoryLimit,
    *,
    trace: str = "random tokens",
) -> Row:
    """The row of one case.

    Args:
      samples: its times.
      plan: what ran.
      model: the model in figures.
      host: the machine.
      limit: what memory allows.
      trace: where the tokens came from.

    Returns:
      A value for each of COLUMNS, in that order, then `samples_ns` and `samples_ts`.
    """
    record = plan.record()
    now = datetime.datetime.now(datetime.UTC)
    case = samples.case
    row = _theirs(plan, model, host, record) | {
        "n_prompt": case.n_prompt,
        "n_gen": case.n_gen,
        "n_depth": case.n_depth,
        "test_time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "avg_ns": samples.mean_ns,
        "stddev_ns": samples.stddev_ns,
        "avg_ts": round(samples.mean_rate, 6),
        "stddev_ts": round(samples.stddev_rate, 6),
    }
    row |= _ours(plan, host, record, limit, case, trace)
    assert list(row) == list(COLUMNS)
    return row | {
        "samples_ns": list(samples.ns),
        "samples_ts": [round(rate, 4) for rate in samples.tokens_per_second],
    }


def flat_text(value: Any) -> str:
    """A value as llama-bench's tables write it: numbers for truth values, nothing for None, JSON for objects."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"))
    return f"{value:.6f}" if isinstance(value, float) else str(value)
