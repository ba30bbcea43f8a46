"""How often Snakemake's SLURM executor asks for the states of its jobs."""

import sys
from typing import Any

PLUGIN = "snakemake_executor_plugin_slurm"


def steady_polling(plugin: str = PLUGIN) -> None:
    """Let the SLURM executor ask every `seconds-between-status-checks`, as Snakemake is told.

    By itself it asks ever more rarely, up to every three minutes, and only a job that succeeds sets it back: a shard
    whose job ended as owed would wait that long for its next one. Without the executor nothing happens.
    """
    executor = getattr(sys.modules.get(plugin), "Executor", None)
    if executor is not None:
        executor.next_seconds_between_status_checks = property(_as_told, _ignore)


def _as_told(executor: Any) -> float:
    return executor.workflow.remote_execution_settings.seconds_between_status_checks


def _ignore(executor: Any, seconds: float) -> None:
    """The executor's own idea of the next interval is not taken."""
