"""Charts as inline SVG: no script, no fonts or files from elsewhere, legible on light and dark ground."""

import math
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import altair
import vl_convert

from rollmake.core.bins import Bin
from rollmake.core.report import Repeat, TaskReward

WIDTH, HEIGHT, LABELS = 800, 210, 42
# Mid-tones with a contrast of 3:1 on white and on near-black; blue and orange differ for every kind of colour vision.
MARK, ACCENT = "#3987c9", "#c9702a"
# The page's own colour: Vega hands the word through to the SVG, where it follows the theme.
INK = "currentColor"
FONT = "system-ui, sans-serif"
AXIS = {
    "domainColor": INK,
    "tickColor": INK,
    "labelColor": INK,
    "titleColor": INK,
    "gridColor": INK,
    "gridOpacity": 0.12,
}
CONFIG = {
    "background": None,
    "font": FONT,
    "aria": False,
    "view": {"stroke": None},
    "axis": AXIS
    | {"domainOpacity": 0.4, "tickOpacity": 0.4, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
}


def task_rewards(tasks: Sequence[TaskReward]) -> str:
    """One dot a task at its mean reward, with a line from its lowest to its highest rollout."""
    rows = [{"task": str(task.task), "mean": task.mean, "min": task.min, "max": task.max} for task in tasks]
    base = altair.Chart(altair.InlineData(rows)).encode(
        x=altair.X("task:N", sort=None, title="task", axis=altair.Axis(labelAngle=0, labelOverlap=True, grid=False))
    )
    spread = base.mark_rule(color=MARK, opacity=0.45, strokeWidth=3).encode(
        y=altair.Y("min:Q", title="reward", axis=altair.Axis(tickCount=5)), y2="max:Q"
    )
    return _svg(spread + base.mark_circle(color=MARK, size=60, opacity=1).encode(y="mean:Q"), "Reward by task")


def reward_histogram(bins: Sequence[Bin]) -> str:
    """How many tasks have a mean reward in each bin."""
    return _svg(_bars(bins, "mean reward of a task", "tasks"), "Number of tasks by mean reward")


def repeat_rewards(repeats: Sequence[Repeat]) -> str:
    """The mean reward of each repeat, with its standard error."""
    rows = [
        {
            "repeat": str(repeat.rollout),
            "mean": repeat.mean,
            "low": repeat.mean - repeat.error,
            "high": repeat.mean + repeat.error,
        }
        for repeat in repeats
    ]
    base = altair.Chart(altair.InlineData(rows)).encode(
        x=altair.X("repeat:N", sort=None, title="repeat", axis=altair.Axis(labelAngle=0, labelOverlap=True, grid=False))
    )
    error = base.mark_rule(color=MARK, opacity=0.45, strokeWidth=3).encode(
        y=altair.Y("low:Q", title="mean reward ± standard error", axis=altair.Axis(tickCount=5)), y2="high:Q"
    )
    return _svg(error + base.mark_circle(color=MARK, size=80, opacity=1).encode(y="mean:Q"), "Mean reward by repeat")


def latency(bins: Sequence[Bin], quantiles: dict[str, float]) -> str:
    """Requests by how long they took, on a log scale, with a line at each of `quantiles` (s)."""
    scale = altair.Scale(type="log", domain=[bins[0].low, bins[-1].high], nice=False)
    rows = [{"name": name, "seconds": seconds} for name, seconds in quantiles.items()]
    base = altair.Chart(altair.InlineData(rows)).encode(x=altair.X("seconds:Q", scale=scale))
    # The names stand above the bars, one below the other, since two quantiles may be close.
    heights = altair.Scale(type="point", range=[-LABELS + 6, -8])
    rule = base.mark_rule(color=ACCENT, strokeWidth=1.5).encode(y=altair.value(-LABELS), y2=altair.value(HEIGHT))
    text = base.mark_text(color=INK, align="left", dx=4, fontSize=12).encode(
        text="name:N", y=altair.Y("name:N", sort=None, axis=None, scale=heights)
    )
    bars = _bars(bins, "seconds (log scale)", "rollouts", scale)
    return _svg(
        altair.layer(bars, rule, text).resolve_scale(y="independent"), "Distribution of the time a rollout takes"
    )


def _bars(bins: Sequence[Bin], x: str, y: str, scale: altair.Scale | None = None) -> altair.Chart:
    rows = [{"low": one.low, "high": one.high, "count": one.count} for one in bins]
    ticks = {"tickCount": 10} if scale is None else {"values": _decades(bins[0].low, bins[-1].high), "format": "~g"}
    return (
        altair.Chart(altair.InlineData(rows))
        .mark_bar(color=MARK, opacity=1, orient="vertical")
        .encode(
            x=altair.X(
                "low:Q",
                title=x,
                scale=scale or altair.Scale(zero=False, nice=False),
                axis=altair.Axis(grid=False, **ticks),
            ),
            x2="high:Q",
            y=altair.Y("count:Q", title=y, axis=altair.Axis(tickMinStep=1, tickCount=5, format=",d")),
        )
    )


def _decades(low: float, high: float) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) for the ticks of a log axis from `low` to `high`."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) <= 5 else (1,)
    return [tick for power in powers for step in steps if low <= (tick := step * 10**power) <= high]


def _svg(chart: Any, label: str) -> str:
    """The SVG of a chart, named for screen readers, and with ids that no other chart of the page has."""
    spec = chart.properties(width=WIDTH, height=HEIGHT).to_dict() | {"config": CONFIG}
    svg = vl_convert.vegalite_to_svg(spec, vl_version=_grammar())
    prefix = re.sub(r"\W+", "-", label.lower())
    svg = re.sub(r'(\bid="|url\(#)', rf"\g<1>{prefix}-", svg)
    return re.sub(r"<svg\b", f'<svg role="img" aria-label="{escape(label)}"', svg, count=1)


def _grammar() -> str:
    """The version of Vega-Lite that this Altair speaks, as `vl_convert` names it."""
    return ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
