"""Quantized maths: formats, references and kernels. No I/O and no policy."""
