"""Make, prove, step and filter reinforcement-learning environments for language-model agents."""

from __future__ import annotations

from envgen.environments.registration import register_envs

__version__ = "0.1.0"

register_envs()
