"""The gated delta rule: step by step for few tokens, in blocks of 64 for prompts."""

from kernels_pallas.gated_delta_net.api import delta_net_narrow as delta_net_narrow
from kernels_pallas.gated_delta_net.api import delta_net_prefill as delta_net_prefill
from kernels_pallas.gated_delta_net.recurrent_plane import RecurrentPlane as RecurrentPlane
from kernels_pallas.gated_delta_net.reference import PREFILL_BLOCK as PREFILL_BLOCK
