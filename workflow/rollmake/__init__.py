"""Collect agent rollouts at scale and score them honestly."""

__version__ = "0.1.0"
