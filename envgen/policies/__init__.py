"""Policies: offline players, model servers, recordings."""

from __future__ import annotations

from envgen.policies.base import Policy, PolicyReply, Tokens
from envgen.policies.budget import Budget, Price
from envgen.policies.registry import PolicyConfig, parse_policy

__all__ = ["Budget", "Policy", "PolicyConfig", "PolicyReply", "Price", "Tokens", "parse_policy"]
