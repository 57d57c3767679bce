"""Make, prove, step and filter reinforcement-learning environments for language-model agents."""

from __future__ import annotations

__version__ = "0.1.0"
