"""The parts of a layer, as functions of activations, weights and cache."""
