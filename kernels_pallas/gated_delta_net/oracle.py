"""The gated delta rule in float64 numpy, token by token: what tests and benchmarks compare with."""

import numpy as np


def delta_rule(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    log_decay: np.ndarray,
    beta: np.ndarray,
    state: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of one slot in order.

    Args:
      q: `[tokens, v_heads, head_dim]`, as k and v.
      k: see q.
      v: see q.
      log_decay: `[tokens, v_heads]`, as beta.
      beta: see log_decay.
      state: `[v_heads, head_dim, head_dim]`, key dim before value dim.

    Returns:
      Outputs `[tokens, v_heads, head_dim]` and the state after each token, `[tokens, *state.shape]`, float64.
    """
    q, k, v, log_decay, beta = (x.astype(np.float64) for x in (q, k, v, log_decay, beta))
    state = state.astype(np.float64)
    out, states = np.empty(v.shape), np.empty((len(q), *state.shape))
    for t in range(len(q)):
        state = state * np.exp(log_decay[t])[:, None, None]
        delta = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * delta[:, None, :]
        out[t], states[t] = np.einsum("hkv,hk->hv", state, q[t]), state
    return out, states
