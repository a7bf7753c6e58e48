"""Softmax attention over a cache of keys and values, for few tokens and for blocks of a prompt."""

from kernels_pallas.attention.api import attention_narrow as attention_narrow
from kernels_pallas.attention.api import attention_prefill as attention_prefill
from kernels_pallas.attention.kv_plane import KV_BLOCK as KV_BLOCK
from kernels_pallas.attention.kv_plane import KVPlane as KVPlane
