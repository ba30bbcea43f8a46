"""The embedded environment: a server of single-turn question answering that speaks the rollout contract."""
