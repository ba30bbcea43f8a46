"""The journal survives every cut, never changes what was published, and takes a failed write back."""

import errno
import os
import resource
import signal

import pytest

from rollmake.core.errors import OwedError
from rollmake.core.outcome import Destination
from rollmake.edge.journal import DiskFullError, Journal, lines

ROLLOUTS, SIDECAR = Destination.ROLLOUTS, Destination.SIDECAR


def reopened(folder):
    journal = Journal(folder)
    journal.close()
    return list(lines(journal.rollouts))


def test_both_files_exist_from_the_start_and_lines_go_where_they_belong(tmp_path):
    journal = Journal(tmp_path / "j")
    assert (journal.rollouts.read_bytes(), journal.failures.read_bytes()) == (b"", b"")
    journal.append(ROLLOUTS, b'{"a":1}')
    journal.append(SIDECAR, b'{"b":1}')
    journal.append(ROLLOUTS, b'{"a":2}')
    journal.close()
    assert journal.rollouts.read_bytes() == b'{"a":1}\n{"a":2}\n'
    assert journal.failures.read_bytes() == b'{"b":1}\n'


def test_a_file_cut_at_every_byte_loses_only_the_line_that_was_cut(tmp_path):
    rows = [b'{"_ng_task_index":%d,"x":"\xc3\xa9"}' % i for i in range(4)]
    whole = b"".join(row + b"\n" for row in rows)
    for cut in range(len(whole) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "rollouts.jsonl").write_bytes(whole[:cut])
        kept = reopened(folder)
        # A line that is whole but for its newline counts as whole.
        expected = [row for i, row in enumerate(rows) if len(b"".join(r + b"\n" for r in rows[: i + 1])) - 1 <= cut]
        assert kept == expected, cut
        torn = (folder / "torn.bin").read_bytes() if (folder / "torn.bin").exists() else b""
        rest = whole[: max(cut, 0)][len(b"".join(row + b"\n" for row in kept)) :]
        assert torn == (rest + b"\n" if rest.strip() else b""), cut
        journal = Journal(folder)
        journal.append(ROLLOUTS, b'{"new":1}')
        journal.close()
        assert list(lines(journal.rollouts)) == [*expected, b'{"new":1}']


def test_a_tail_of_zeros_from_a_power_cut_is_set_aside(tmp_path):
    (tmp_path / "rollouts.jsonl").write_bytes(b'{"a":1}\n' + bytes(3 << 20))
    assert reopened(tmp_path) == [b'{"a":1}']
    assert (tmp_path / "torn.bin").stat().st_size == (3 << 20) + 1


def test_appending_breaks_the_link_to_what_was_published(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.append(ROLLOUTS, b'{"a":1}')
    journal.close()
    published = tmp_path / "out" / "rollouts.jsonl"
    journal.publish(published)
    assert published.samefile(journal.rollouts)
    again = Journal(tmp_path / "j")
    again.close()
    assert published.samefile(journal.rollouts), "opening without a change keeps the link"
    again = Journal(tmp_path / "j")
    again.append(ROLLOUTS, b'{"a":2}')
    again.close()
    assert published.read_bytes() == b'{"a":1}\n'
    assert journal.rollouts.read_bytes() == b'{"a":1}\n{"a":2}\n'


def test_mending_a_torn_tail_does_not_change_what_was_published(tmp_path):
    folder = tmp_path / "j"
    folder.mkdir()
    (folder / "rollouts.jsonl").write_bytes(b'{"a":1}\n{"b')
    os.link(folder / "rollouts.jsonl", tmp_path / "published")
    assert reopened(folder) == [b'{"a":1}']
    assert (tmp_path / "published").read_bytes() == b'{"a":1}\n{"b'


def test_publishing_twice_replaces(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.append(ROLLOUTS, b'{"a":1}')
    journal.close()
    journal.publish(tmp_path / "rollouts.jsonl")
    journal.publish(tmp_path / "rollouts.jsonl")
    assert (tmp_path / "rollouts.jsonl").read_bytes() == b'{"a":1}\n'
    assert (tmp_path / "rollouts_failures.jsonl").read_bytes() == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["j", "rollouts.jsonl", "rollouts_failures.jsonl"]


@pytest.mark.parametrize(
    "change", [lambda path: os.truncate(path, 0), lambda path: path.write_bytes(b"x" * 99), os.unlink]
)
def test_a_journal_that_somebody_else_changed_is_not_published(tmp_path, change):
    journal = Journal(tmp_path / "j")
    journal.append(ROLLOUTS, b'{"a":1}')
    change(journal.rollouts)
    journal.append(ROLLOUTS, b'{"a":2}')
    journal.close()
    with pytest.raises(OwedError, match=r"something else changed it. Run the stage again"):
        journal.publish(tmp_path / "out" / "rollouts.jsonl")
    assert not (tmp_path / "out").exists()


def test_publishing_copies_where_there_are_no_hard_links(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "j")
    journal.append(ROLLOUTS, b'{"a":1}')
    journal.close()

    def refuse(*arguments):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    journal.publish(tmp_path / "rollouts.jsonl")
    assert (tmp_path / "rollouts.jsonl").read_bytes() == b'{"a":1}\n'
    assert not (tmp_path / "rollouts.jsonl").samefile(journal.rollouts)


def test_a_write_that_ends_half_way_is_taken_back(tmp_path):
    """A file size limit makes the kernel write a part of a line and then refuse, as a full disk does."""
    journal = Journal(tmp_path)
    journal.append(ROLLOUTS, b'{"a":1}')
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(DiskFullError):
            journal.append(ROLLOUTS, b'{"a":"' + b"x" * 5000 + b'"}')
        assert journal.rollouts.read_bytes() == b'{"a":1}\n'
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    journal.append(ROLLOUTS, b'{"a":2}')
    journal.close()
    assert list(lines(journal.rollouts)) == [b'{"a":1}', b'{"a":2}']


def test_lines_of_a_missing_and_of_an_empty_file_are_none(tmp_path):
    assert list(lines(tmp_path / "none")) == []
    (tmp_path / "empty").touch()
    assert list(lines(tmp_path / "empty")) == []


def test_line_separators_inside_strings_are_text(tmp_path):
    (tmp_path / "f").write_bytes('{"a":"\u2028\u0085"}\n{"b":1}'.encode())
    assert list(lines(tmp_path / "f")) == ['{"a":"\u2028\u0085"}'.encode(), b'{"b":1}']
