"""The names `--routing_policy` accepts."""

from moejax.registry import Registry
from moejax.routing.base import RoutingPolicy

ROUTING_POLICIES: Registry[type[RoutingPolicy]] = Registry("routing policy", "moejax.routing")
