"""What a person sees at a terminal: the whole bar and the whole text, below what is logged."""

import logging
import os
import pty
import re
import select

import pytest

from rollmake.edge.terminal import StderrHandler, progress_bar

TEXT = (
    "0000-of-0001: 12 of 60 done, 3 agent_run_error, 4 in flight, 7.5/s, about 7 s left, reward 0.5000, at least 0.3333"
)
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def written(descriptor):
    """All that waits to be read."""
    parts = []
    while select.select([descriptor], [], [], 0)[0]:
        parts.append(os.read(descriptor, 1 << 16))
    return b"".join(parts)


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of so many columns as standard error; it gives back what was written to it, without colours."""
    opened = []

    def make(columns, kind="xterm-256color"):
        main, side = pty.openpty()
        stderr = os.fdopen(side, "w")
        opened.extend([main, stderr])
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (("TERM", kind), ("COLUMNS", str(columns)), ("LINES", "24")):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stderr", stderr)
        return lambda: CONTROL.sub("", written(main).decode())

    yield make
    for one in opened:
        os.close(one) if isinstance(one, int) else one.close()


@pytest.mark.parametrize("columns", [40, 80])
def test_the_bar_has_a_line_of_its_own_and_the_text_is_whole(terminal, columns):
    seen = terminal(columns)
    with progress_bar(60) as bar:
        bar(12, TEXT)
        lines = [line.strip() for line in seen().split("\r")]
    assert max(lines, key=len).count("━") + max(lines, key=len).count("╸") == columns
    assert all(len(line) <= columns for line in lines)
    assert TEXT in " ".join(line for line in lines if "━" not in line)


def test_what_is_logged_stays_above_the_bar(terminal):
    seen = terminal(80)
    handler, log = StderrHandler(), logging.getLogger("above the bar")
    log.addHandler(handler)
    try:
        with progress_bar(3) as bar:
            bar(1, "one")
            log.warning("something happened")
            bar(2, "two")
            during = seen()
        log.warning("the end")
    finally:
        log.removeHandler(handler)
    assert during.index("something happened") < during.rindex("━") < during.rindex("two")
    assert seen().strip().endswith("the end")


def test_a_bar_of_nothing_is_drawn(terminal):
    seen = terminal(40)
    with progress_bar(0) as bar:
        bar(0, "nothing is owed")
        assert "nothing is owed" in seen()


def test_a_closed_standard_error_is_no_terminal_and_ends_nothing(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    StderrHandler().handle(logging.makeLogRecord({"msg": "into the void"}))
    with progress_bar(3) as bar:
        assert bar is None


def test_without_a_terminal_that_can_draw_there_is_no_bar(terminal, capsys):
    with progress_bar(3) as bar:
        assert bar is None
    terminal(80, kind="dumb")
    with progress_bar(3) as bar:
        assert bar is None
