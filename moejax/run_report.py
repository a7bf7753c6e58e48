"""The lines that tell a person what ran and how fast."""

from moejax.plan import Plan
from moejax.text import TextResult


def describe_run(plan: Plan) -> str:
    """One line: model, device, placement, policies, versions."""
    record = plan.record()
    model, device, size = record["model"], record["device"], record["bytes"]
    return (
        f"{model['name']} ({model['architecture']}, {model['layers']} layers) on {device['platform']} "
        f"({device['kind']}): weights {size['weights'] / 2**20:.0f} MiB, state {size['state'] / 2**20:.0f} MiB, "
        f"context {record['context']}, KV {record['cache_type_k']}/{record['cache_type_v']}, "
        f"routing {record['routing_policy']}, kernels {record['kernels']}, "
        f"moejax {record['versions']['moejax']}, jax {record['versions']['jax']}"
    )


def speed_line(result: TextResult, seed: int | None) -> str:
    """Prompt and generation speed (the first token belongs to the prompt's time), and the seed if there was one."""
    timings = result.timings
    prompt_rate = timings.prompt_n / timings.prompt_ms * 1e3 if timings.prompt_ms else 0.0
    followed = max(timings.predicted_n - 1, 0)
    rate = followed / timings.predicted_ms * 1e3 if timings.predicted_ms else 0.0
    return (
        f"prompt {timings.prompt_n} tokens, {prompt_rate:.1f} tokens/s; "
        f"generated {timings.predicted_n} tokens, {rate:.1f} tokens/s; stopped by {result.stop}"
        + ("" if seed is None else f"; seed {seed}")
    )
