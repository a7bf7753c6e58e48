"""The routed experts' feed-forward: gate, up, activation, down, weighted sum."""

from kernels_pallas.expert_matmul.api import ExpertWeights as ExpertWeights
from kernels_pallas.expert_matmul.api import expert_matmul_narrow as expert_matmul_narrow
from kernels_pallas.expert_matmul.api import expert_matmul_wide as expert_matmul_wide
