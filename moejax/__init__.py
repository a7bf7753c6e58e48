"""moejax: quantized Mixture-of-Experts GGUF models larger than GPU memory, in JAX."""

__version__ = "0.1.0"
