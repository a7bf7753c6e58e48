"""Routing policies: which experts a token uses. One file each; see `base.py` to add one."""

from moejax.routing.base import RoutingPolicy as RoutingPolicy
from moejax.routing.base import RoutingView as RoutingView
from moejax.routing.registry import ROUTING_POLICIES as ROUTING_POLICIES
