"""What the plan says."""

from datetime import UTC, datetime

from rollmake.core.outlook import Evidence, Outlook, Site
from rollmake.core.outlook_text import Held, evidence_line, held_lines, no_outlook_lines, outlook_lines, rate_line

SEEN = Evidence(rollouts=100, mean_s=10.0, p50_s=9.0, margin_s=12.0, longest_s=60.0)
FOUND = Outlook(rollouts=320, jobs=2, links=3, allocations=8, seconds=5400.0, bound="the longest rollout: 1 min 00 s")
NOW = datetime(2026, 1, 31, 22, 45, tzinfo=UTC)
SITE = Site(jobs=2, parallel=4, window_s=100.0)


def said(site=SITE, within_s=None, best=None):
    return "\n".join(outlook_lines(FOUND, site, NOW, within_s, best))


def test_without_evidence_it_says_so():
    assert "evidence: none" in evidence_line(None, borrowed=True)


def test_evidence_is_named_with_its_number():
    line = evidence_line(SEEN, borrowed=False)
    assert "100 answered rollouts took 10 s on average, half of them at most 9 s, the longest 60 s" in line
    assert "guess" not in line
    assert "other runs" not in line


def test_little_evidence_is_called_a_guess():
    few = Evidence(rollouts=29, mean_s=10.0, p50_s=9.0, margin_s=12.0, longest_s=60.0)
    assert "guess" in evidence_line(few, borrowed=False)


def test_evidence_of_other_runs_is_named_as_such():
    assert "of the config's other runs" in evidence_line(SEEN, borrowed=True)


def test_the_rate_is_that_of_a_job():
    line = rate_line([0.5, 0.25], 4, 10.0)
    assert "0.375 rollouts/s a job, over the latest jobs of 2 shards; 4 slots always busy would give 0.4/s" in line
    assert "of 1 shard;" in rate_line([0.5], 4, 10.0)


def test_rollouts_that_took_no_time_give_no_rate_to_reckon_with():
    assert rate_line([0.5], 4, 0.0).endswith("1 shard")


def test_the_end_and_what_it_takes():
    text = said()
    assert "with 2 jobs at once: 1 h 30 min, until about 2026-02-01 00:15, without waiting in the queue" in text
    assert "bound by the longest rollout: 1 min 00 s" in text
    assert "allocations: 8, up to 3 a shard, each starting rollouts for 1 min 40 s; `retries` must be 2 or more" in text


def test_without_a_time_limit_no_number_of_retries_is_named():
    text = said(Site(jobs=2, parallel=4))
    assert "--runtime-min" in text
    assert "retries" not in text


def test_the_fewest_allocations_that_end_in_time():
    text = said(within_s=7200, best=Outlook(rollouts=320, jobs=5, links=2, allocations=9, seconds=60.0, bound=""))
    assert "to end in time: 5 at once, 9 in all, 1 min 00 s" in text


def test_what_cannot_end_in_time():
    assert "does not end in time with any number of jobs" in said(within_s=10)


def test_an_allocation_that_is_too_short():
    (line,) = no_outlook_lines(SEEN, 1, 20)
    assert "an allocation of 1 min starts no rollout" in line
    assert "grace of 20 s, 60 s for the end and a drain margin of 12 s" in line


def held(name, seconds, slowest=None):
    return Held(
        shard=name, jobs=2, seconds=seconds, p50_s=3.0, longest_s=61.0, busy_s=400.0, parallel=4, slowest=slowest
    )


def test_nothing_sealed_no_tail_report():
    assert list(held_lines([])) == []


def test_the_shards_that_lost_most_come_first_and_no_more_than_five():
    head, *lines = held_lines([held(f"shard-{number}", 100.0 + number) for number in range(7)])
    assert "of 7 sealed shards" in head
    assert [line.split(":")[0].strip() for line in lines] == [f"shard-{number}" for number in (6, 5, 4, 3, 2)]
    assert "1 min 46 s in 2 jobs, 6 s of it with idle slots; half took at most 3 s, the longest 61 s" in lines[0]


def test_the_slowest_row_is_named_where_it_is_known():
    lines = list(held_lines([held("a", 100.0, (7, 1, 60.5))]))
    assert lines[1].endswith("its slowest rollout is task 7, rollout 1: 60.5 s")


def test_a_shard_busier_than_its_jobs_were_long_lost_nothing():
    assert held("a", 90.0).idle_s == 0.0
