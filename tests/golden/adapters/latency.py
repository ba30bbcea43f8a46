"""Latency cases: quantiles and drain margins of durations, or the duration that a record tells."""

from rollmake.core.latency import drain_margin, elapsed_seconds, quantile


def run(input: dict, topology: dict | None):
    if "record" in input:
        return elapsed_seconds(input["record"])
    durations = input["durations_s"]
    quantiles = {f"p{percent}": quantile(durations, percent / 100) for percent in (50, 75, 90, 99)}
    margins = {"margin_unset": None, "margin_12": 12.0, "margin_0": 0.0}
    return quantiles | {name: drain_margin(durations, configured) for name, configured in margins.items()}
