"""From a GGUF index to a described model and to device weights."""
