"""Matrix product of activations with a quantized dense weight."""

from kernels_pallas.dense_matmul.api import dense_matmul as dense_matmul
