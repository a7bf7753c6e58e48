"""From file bytes to device slabs: GGUF files, host memory, transfers. No model maths."""
