"""The page says what the score rests on, holds whatever the models wrote, and needs nothing from elsewhere."""

import html
import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
import yaml

from helpers.run_folder import SERVER, make_run
from rollmake.core.errors import DataError, InputError
from rollmake.stages import report

SCHEMAS = Path(__file__).parents[2] / "schemas"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NASTY = (
    "</script></style></pre><script>alert(1)</script><img src=x onerror=alert(2)><a href=javascript:1>\" ' & {{ 7*7 }} "
    "\u202egnp.exe\u202c \x00\x1b[31m\u2028next\u0007 \u0645\u0631\u062d\u0628\u0627 "
)
VOID = {"meta", "br"}
BLOCKS = {"h1", "h2", "h3", "div", "p", "li", "th", "td", "dt", "dd", "br"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails on tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.text = set(), [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        self.text += " " if tag in BLOCKS else ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def page(folder):
    return report.page(folder, NOW)


def words(text):
    return " ".join(Page(text).text.split())


def change(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("report") / "demo")


@pytest.fixture(scope="module")
def demo_page(demo):
    return page(demo)


@pytest.mark.parametrize("name", ["collection", "repair"])
def test_the_sample_is_what_the_schemas_say(demo, name):
    schema = yaml.safe_load((SCHEMAS / f"{name}.schema.yaml").read_text())
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    for path in demo.glob(f"*/*/{name}.json"):
        validator.validate(json.loads(path.read_text()))


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 2},
        {"shard": "1"},
        {"owed": -1},
        {"failed_by_class": {"a": "x"}},
        {"jobs": [{"host": "h"}]},
        {"latency": {"growth": 1.5}},
        {"more": 1},
    ],
)
def test_the_schema_of_collection_refuses_damage(demo, damage):
    content = json.loads(next(demo.glob("shards/*/collection.json")).read_text())
    validator = jsonschema.Draft202012Validator(yaml.safe_load((SCHEMAS / "collection.schema.yaml").read_text()))
    assert validator.is_valid(content)
    assert not validator.is_valid(content | damage)


def test_the_stage_writes_the_page(demo, tmp_path):
    output = tmp_path / "new" / "report.html"
    report.run(report.Files(run=demo, output=output), report.Settings())
    text = output.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert len(text) < 200_000


def test_the_score_stands_beside_its_coverage(demo, demo_page):
    coverage = json.loads((demo / "coverage.json").read_text())
    entry = json.loads((demo / "rollouts_aggregate_metrics.json").read_text())[0]
    text = words(demo_page)
    assert coverage["scored"] < coverage["expected"] == 40
    assert f"The score rests on {coverage['scored']} of 40 expected rollouts." in text
    assert f"{entry['agent_metrics']['mean/reward']:.4g} mean reward" in text
    card = re.search(r'<div class="card">.*?</ul>', demo_page, re.DOTALL)[0]
    assert f"<strong>{coverage['scored']}</strong> of <strong>40</strong>" in card
    for name, count in coverage["failed_by_class"].items():
        assert f"failed: {name} <b>{count}</b>" in card
    assert f"missing <b>{coverage['missing']}</b>" in card


def test_every_part_of_the_page_is_there(demo, demo_page):
    text = words(demo_page)
    for part in (
        "Failures",
        "Time a rollout takes",
        "Shards",
        "What repair changed",
        "Examples",
        "Where this comes from",
    ):
        assert part in text
    assert "2: 1 killed, 1 sealed" in text
    assert "duplicate 6" in text
    assert "ClientResponseError: 500, What is 2 + 2?" in text
    assert json.loads((demo / "plan.json").read_text())["digest"] in text
    assert "2026-01-02 03:04:05 UTC" in text
    assert demo_page.count("<svg") == 3


def test_the_page_needs_nothing_from_elsewhere(demo_page):
    parsed = Page(demo_page)
    assert not parsed.tags & {"script", "link", "img", "iframe", "object", "base"}
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name in ("src", "href", "xlink:href")]
    assert not re.search(r"@import|url\((?!#)|https?://(?!www\.w3\.org/)", demo_page)
    assert "default-src 'none'" in demo_page


def test_the_page_depends_on_nothing_but_files_and_time(demo, demo_page):
    assert page(demo) == demo_page
    other = report.page(demo, NOW.replace(year=2030))
    assert other.replace("2030-", "2026-") == demo_page.replace("2030-", "2026-")


def test_whatever_models_write_stays_text(tmp_path):
    text = page(make_run(tmp_path / "run", tasks=4, failing=0.4, text=NASTY * 80))
    parsed = Page(text)
    assert not parsed.tags & {"script", "img", "a"}
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name == "href"]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text)
    assert html.escape("<script>alert(1)</script>", quote=False) in text
    assert "{{ 7*7 }}" in html.unescape(text)
    assert "\\u202egnp.exe\\u202c" in text
    assert re.search(r"… [\d,]+ more characters are not shown", text)
    assert len(text) < 200_000


def test_names_from_files_stay_text_too(tmp_path):
    folder = make_run(tmp_path / "run", failing=0)
    numbers = json.loads((folder / "coverage.json").read_text())
    numbers["servers"] = {NASTY: numbers["servers"][SERVER]}
    numbers["failed_by_class"] = {NASTY: 1}
    (folder / "coverage.json").write_text(json.dumps(numbers))
    entry = json.loads((folder / "rollouts_aggregate_metrics.json").read_text())[0]
    entry |= {"agent_ref": {"name": NASTY}, "_ng_environment_server": NASTY, "key_metrics": {NASTY: 1.0}}
    (folder / "rollouts_aggregate_metrics.json").write_text(json.dumps([entry]))
    text = page(folder)
    assert not Page(text).tags & {"script", "img", "a"}
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text)


def test_a_complete_run_is_not_warned_about(tmp_path):
    text = page(make_run(tmp_path / "run", failing=0, missing=0))
    assert "Complete: 40 of 40 expected rollouts scored." in words(text)
    assert 'class="banner good"' in text
    assert "Failures" not in words(text)


def test_imputed_rollouts_are_said_to_be(tmp_path):
    folder = make_run(tmp_path / "run", failing=0)
    numbers = json.loads((folder / "coverage.json").read_text())
    missing = numbers["missing"]
    for part in (numbers, numbers["servers"][SERVER]):
        part |= {"imputed": missing, "missing": 0}
    (folder / "coverage.json").write_text(json.dumps(numbers))
    text = page(folder)
    assert 'class="banner"' in text
    assert f"{missing} counted without a result" in words(text)


def test_failures_that_count_are_shown_as_such(tmp_path):
    folder = make_run(tmp_path / "run", failing=0.5)
    numbers = json.loads((folder / "coverage.json").read_text())
    counted = numbers["failed_by_class"].pop("agent_run_error")
    change(folder / "coverage.json", failed_by_class=numbers["failed_by_class"], imputed=counted)
    text = words(page(folder))
    assert f"agent_run_error{counted} rollouts, counted in the score" in text
    assert text.count("counted in the score") == 1


def test_a_run_in_which_everything_failed_has_no_score(tmp_path):
    text = words(page(make_run(tmp_path / "run", failing=1)))
    assert "No score: none of 40 expected rollouts was scored." in text
    assert "no score" in text
    assert "No rollout of this run has a reward." in text
    assert "Nothing was timed" in text


def test_a_run_without_rollouts_says_so(tmp_path):
    text = page(make_run(tmp_path / "run", tasks=0))
    assert "This run expects no rollouts" in words(text)
    assert 'class="banner"' in text


def test_a_run_without_metrics_says_so(tmp_path):
    text = words(page(make_run(tmp_path / "run", aggregate=False)))
    assert "There are no aggregate metrics, so this page shows no score." in text
    assert "mean reward" not in text


def test_a_server_with_metrics_of_its_own_making_has_a_page(tmp_path):
    folder = make_run(tmp_path / "run")
    path = folder / "rollouts_aggregate_metrics.json"
    entry = {"agent_ref": {"name": "quiz"}, "_ng_environment_server": SERVER, "agent_metrics": {"mean/reward": 0.25}}
    path.write_text(json.dumps([entry]))
    text = words(page(folder))
    assert "0.25 mean reward" in text
    assert "hold no reward of single tasks" in text


def test_a_shard_without_its_collection_is_named(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "shards" / "0001-of-0003" / "collection.json").unlink()
    assert re.search(r"0001-of-0003 ?no collection\.json", words(page(folder)))


def test_a_run_that_something_else_collected_has_a_page(tmp_path):
    folder = make_run(tmp_path / "run")
    for path in (folder / "plan.json", folder / "plan.parquet", *folder.glob("shards/*/*")):
        path.unlink()
    text = words(page(folder))
    assert "the shards were collected by something else" in text
    assert "0002-of-0003" in text


def test_thousands_of_tasks_make_a_histogram_and_a_short_page(tmp_path):
    text = page(make_run(tmp_path / "run", tasks=2000, repeats=2, shards=60))
    assert "too many to show one by one" in text
    assert "50 of 60 shards are listed" in text
    assert len(text) < 200_000


def test_several_servers_have_a_score_each_and_none_together(tmp_path):
    folder = make_run(tmp_path / "run")
    coverage = json.loads((folder / "coverage.json").read_text())
    path = folder / "rollouts_aggregate_metrics.json"
    entry = json.loads(path.read_text())[0]
    names = [f"\u202eserver{index}" for index in range(report.CHARTED_SERVERS + 1)]
    change(folder / "coverage.json", servers=dict.fromkeys(names, coverage["servers"][SERVER]))
    entries = [entry | {"_ng_environment_server": name, "agent_ref": {"name": name}} for name in names]
    path.write_text(json.dumps(entries))
    text = page(folder)
    assert text.count('<div class="card">') == len(names) + 1
    assert text.count("<svg") == 2 * report.CHARTED_SERVERS + 1
    assert "No mean over servers" in text
    assert "\u202e" not in text
    assert "Reward: \\u202eserver0" in text
    assert "Charts are drawn for the first 8 servers only." in text
    assert len(text) < 500_000


def test_a_folder_without_coverage_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"coverage\.json is missing"):
        page(tmp_path)


def test_a_file_that_lacks_what_it_must_hold_is_refused(tmp_path):
    folder = make_run(tmp_path / "run")
    change(folder / "shards" / "0000-of-0003" / "collection.json", jobs=[{}])
    with pytest.raises(DataError, match="does not hold what it must"):
        page(folder)


def test_the_interval_stands_beside_the_score(tmp_path):
    folder = make_run(tmp_path / "run")
    assert "95 % interval over tasks" not in words(page(folder))
    mean = {"estimate": 0.5, "low": 0.125, "high": 0.875}
    (folder / "statistics.json").write_text(json.dumps({"score": "reward", "servers": {SERVER: {"mean": mean}}}))
    assert "mean reward 95 % interval over tasks 0.125 to 0.875" in words(page(folder))
    (folder / "statistics.json").write_text(json.dumps({"score": "grade", "servers": {SERVER: {"mean": mean}}}))
    assert "mean grade 0.5, 95 % interval over tasks 0.125 to 0.875" in words(page(folder))
    assert "mean reward 95" not in words(page(folder))


def test_no_run_is_complete_while_lines_that_may_be_owed_cannot_be_read(tmp_path):
    run = make_run(tmp_path / "run", failing=0, missing=0)
    coverage = run / "coverage.json"
    assert 'class="banner good"' in page(run)
    change(coverage, lost_lines={"torn": 1})
    assert 'class="banner good"' in (known := page(run))
    assert "1 damaged line was taken out of the rollouts (torn 1)" in words(known)
    change(coverage, unreadable_lines={"0000-of-0003": 1})
    text = page(run)
    assert 'class="banner good"' not in text
    assert "Complete" not in words(text)
    assert "The score rests on 40 of 40 known rollouts; 1 line that may be more of them cannot be read." in words(text)


def test_subsets_stand_in_a_table_with_their_coverage(demo, tmp_path):
    run = make_run(tmp_path / "run", tasks=4)
    numbers = json.loads((run / "coverage.json").read_text())["servers"][SERVER]
    change(run / "coverage.json", subsets={"<i>": numbers, "": numbers})
    entries = json.loads((run / "rollouts_aggregate_metrics.json").read_text())
    entries[0]["agent_metrics"]["<i>/pass@1[avg-of-4]/accuracy"] = 37.5
    (run / "rollouts_aggregate_metrics.json").write_text(json.dumps(entries))
    text = page(run)
    counts = (
        f"{numbers['scored']} {numbers['expected']} {sum(numbers['failed_by_class'].values())} {numbers['missing']}"
    )
    assert f"<i> 37.5 pass@1[avg-of-4]/accuracy {counts}" in words(text)
    assert f"tasks without a subset none {counts}" in words(text)
    assert "Subsets" not in words(page(demo))
