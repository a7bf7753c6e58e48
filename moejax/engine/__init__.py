"""Sessions and steps: the engine sees token ids, never text."""
