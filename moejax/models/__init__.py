"""Architectures: one file each, named after `general.architecture`."""

from moejax.models.registry import ARCHITECTURES as ARCHITECTURES
