"""Charts are well-formed SVG that needs nothing from elsewhere, and draw what they are given."""

import re
from xml.etree import ElementTree

import pytest

from rollmake.core.bins import Bin
from rollmake.core.report import Repeat, TaskReward
from rollmake.edge import charts

SVG = "{http://www.w3.org/2000/svg}"
TASKS = [TaskReward(7, 4, 0.5, 0.0, 1.0), TaskReward(12, 4, 1.0, 1.0, 1.0)]
REPEATS = [Repeat(0, 10, 0.4, 0.1), Repeat(1, 9, 0.6, 0.1)]
BINS = [Bin(0.0, 0.5, 30), Bin(0.5, 1.0, 12)]
TIMES = [Bin(0.1, 1.0, 5), Bin(1.0, 10.0, 50), Bin(10.0, 100.0, 2)]
DRAWN = {
    "tasks": lambda: charts.task_rewards(TASKS),
    "histogram": lambda: charts.reward_histogram(BINS),
    "repeats": lambda: charts.repeat_rewards(REPEATS),
    "latency": lambda: charts.latency(TIMES, {"p50": 2.0, "p90": 8.0}),
}


@pytest.fixture(scope="module", params=DRAWN)
def svg(request):
    return DRAWN[request.param]()


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def marks(svg):
    """The path data of the marks that are filled with the colour of data."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}path")
    return [element.get("d") for element in found if element.get("fill") == charts.MARK]


def test_a_chart_is_an_image_with_a_name_and_nothing_from_elsewhere(svg):
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert not re.search(r"<script|<image|<foreignObject|@import|https?://(?!www\.w3\.org/)", svg)


def test_a_chart_follows_the_theme(svg):
    assert {element.get("fill") for element in ElementTree.fromstring(svg).iter(f"{SVG}text")} == {"currentColor"}
    filled = {element.get("fill") for element in ElementTree.fromstring(svg).iter(f"{SVG}rect")}
    assert filled <= {None, "none", "transparent"}


def test_no_two_charts_share_an_id():
    found = [re.findall(r'\bid="([^"]+)"', draw()) for draw in DRAWN.values()]
    names = [name for names in found for name in names]
    assert len(set(names)) == len(names)


def test_a_chart_is_the_same_each_time():
    assert charts.latency(TIMES, {"p50": 2.0}) == charts.latency(TIMES, {"p50": 2.0})


def test_tasks_and_repeats_are_named():
    assert {"7", "12", "task", "reward"} <= set(texts(DRAWN["tasks"]()))
    assert {"0", "1", "repeat", "mean reward ± standard error"} <= set(texts(DRAWN["repeats"]()))


def test_each_task_and_each_bin_is_drawn():
    assert len(marks(DRAWN["tasks"]())) == len(TASKS)
    assert len(marks(DRAWN["histogram"]())) == len(BINS)
    assert len(marks(DRAWN["latency"]())) == len(TIMES)


def test_counts_are_written_out():
    assert {"0", "2", "4", "6", "8", "10"} <= set(texts(charts.reward_histogram([Bin(0.0, 0.5, 4), Bin(0.5, 1.0, 10)])))
    assert "10,000" in texts(charts.reward_histogram([Bin(0.0, 1.0, 10000)]))


def test_time_is_on_a_log_scale_and_quantiles_are_named():
    svg = DRAWN["latency"]()
    assert {"p50", "p90", "seconds (log scale)"} <= set(texts(svg))
    assert {"0.1", "1", "10", "100"} <= set(texts(svg))
    # Each bin is a decade, so all are equally wide.
    widths = {re.search(r"h(\d+)", path)[1] for path in marks(svg)}
    assert len(widths) == 1
    assert int(widths.pop()) == pytest.approx(charts.WIDTH / len(TIMES), rel=0.02)
