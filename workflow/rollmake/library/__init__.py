"""The Python library: rows of your own -> rollouts, without files."""

from rollmake.core.errors import InputError, ServerError
from rollmake.library.examples import preprocess_examples
from rollmake.library.rollouts import run_examples
from rollmake.library.types import Rollout, RolloutError

__all__ = ["InputError", "Rollout", "RolloutError", "ServerError", "preprocess_examples", "run_examples"]
