"""The architectures a GGUF may name."""

from moejax.models.architecture import Architecture
from moejax.registry import Registry

ARCHITECTURES: Registry[Architecture] = Registry("architecture", "moejax.models")
