"""One self-contained page about a run: every score with the coverage it rests on, and what stands behind both."""

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import jinja2
import msgspec
from markupsafe import Markup

from rollmake import __version__
from rollmake.core import phrases
from rollmake.core import report as view
from rollmake.core.bins import latency_bins, latency_quantiles
from rollmake.core.errors import DataError
from rollmake.core.excerpts import harmless
from rollmake.core.latency import LatencySummary
from rollmake.core.subsets import subsets
from rollmake.edge import charts, run_files
from rollmake.edge.files import write_atomic

HELP = "Write one page with the scores of a run and what they rest on."
CHARTED_SERVERS = 8


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the report reads and writes."""

    run: Annotated[Path, msgspec.Meta(description="folder of the run, results/{run}")]
    output: Annotated[Path, msgspec.Meta(description="report.html")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The report has no options."""


def run(files: Files, settings: Settings) -> None:
    """Write the report of `files.run`. Raises DataError if one of its files is not what the stage before it wrote."""
    write_atomic(files.output, page(files.run, datetime.now(UTC)).encode())


def page(folder: Path, generated: datetime) -> str:
    """The HTML of the report; the same for the same files but for the time at which it was `generated`."""
    coverage = run_files.required(folder / "coverage.json")
    plan = run_files.optional(folder / "plan.json")
    entries = run_files.optional(folder / "rollouts_aggregate_metrics.json") or []
    names = run_files.shard_folders(folder, plan)
    collections = {name: run_files.optional(folder / "shards" / name / "collection.json") for name in names}
    repairs = [run_files.optional(folder / "repaired" / name / "repair.json") for name in names]
    try:
        content = (
            _scores(entries, coverage, run_files.optional(folder / "statistics.json"))
            | _latency(collections)
            | _shards(collections)
        )
        content |= {"failures": view.failure_classes(coverage, collections.values())}
        content |= {"plan": plan, "repairs": view.repairs(repairs), "facts": _facts(plan, collections, generated)}
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"a file of this run does not hold what it must ({error!r})", where=str(folder)) from error
    content |= {"examples": run_files.examples(folder, names)}
    content |= {"failure_examples": run_files.failures(folder, {failure.name for failure in content["failures"]})}
    return _template().render(name=folder.resolve().name, **content)


def _scores(
    entries: list[Mapping[str, Any]], coverage: Mapping[str, Any], statistics: Mapping[str, Any] | None
) -> dict[str, Any]:
    scores = view.scores(entries, coverage, statistics)
    overall, unreadable = view.basis(coverage), sum(coverage["unreadable_lines"].values())
    return {
        "overall": overall,
        "good": overall.complete and overall.expected > 0 and not unreadable and bool(entries),
        "headline": phrases.headline(overall, unreadable),
        "warnings": phrases.warnings(coverage, len(entries)),
        "scores": scores,
        "subsets": subsets(entries, scores, coverage),
        "rewards": _rewards([score for score in scores if score.mean is not None]),
        "charts_limit": CHARTED_SERVERS,
    }


def _rewards(scores: list[view.Score]) -> list[tuple[view.Score, dict[str, Markup | None] | None]]:
    return [(score, _charts(score) if index < CHARTED_SERVERS else None) for index, score in enumerate(scores)]


def _charts(score: view.Score) -> dict[str, Markup | None]:
    tasks = repeats = None
    if score.tasks or score.histogram:
        tasks = Markup(charts.task_rewards(score.tasks) if score.tasks else charts.reward_histogram(score.histogram))
    if score.repeats:
        repeats = Markup(charts.repeat_rewards(score.repeats))
    return {"tasks": tasks, "repeats": repeats}


def _latency(collections: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    summary = LatencySummary()
    for collection in collections.values():
        if collection is not None:
            summary.merge(LatencySummary.from_dict(collection["latency"]))
    bins, quantiles = latency_bins(summary), latency_quantiles(summary)
    chart = Markup(charts.latency(bins, quantiles)) if bins else None
    return {"latency": summary, "latency_bins": bins, "latency_chart": chart, "quantiles": quantiles}


def _shards(collections: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    rows = [view.shard_row(name, collection) for name, collection in collections.items()]
    return {"rows": rows, "shown_rows": view.shards_shown(rows), "total": view.shard_total(rows)}


def _facts(
    plan: Mapping[str, Any] | None, collections: Mapping[str, Mapping[str, Any] | None], generated: datetime
) -> list[tuple[str, str]]:
    facts = view.plan_facts(plan) + view.job_facts([one for one in collections.values() if one is not None])
    software = f"rollmake {__version__}, Python {platform.python_version()}"
    return [*facts, ("written by", software), ("written at", generated.strftime("%Y-%m-%d %H:%M:%S UTC"))]


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        # Escaping stops markup; this stops what hides or reorders text, wherever on the page it stands.
        finalize=lambda value: harmless(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": "{:,}".format,
        "number": phrases.number,
        "percent": phrases.percent,
        "seconds": phrases.seconds,
    }
    return environment.get_template("report.html.j2")
