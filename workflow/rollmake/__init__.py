"""Collect agent rollouts at scale and score them honestly."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollmake.library import InputError, Rollout, RolloutError, ServerError, preprocess_examples, run_examples

__version__ = "0.1.0"
__all__ = [
    "InputError", "Rollout", "RolloutError", "ServerError", "__version__", "preprocess_examples", "run_examples",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The library is imported when it is first asked for, so that commands that do without it start fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rollmake import library

    return getattr(library, name)
