"""The errors that rollmake raises on purpose: one message that names the place, what was found and what to do."""


class RollmakeError(Exception):
    """A problem that its reader can act on; the command line prints it without a traceback and exits with 1."""

    def __init__(self, found: str, *, where: str = "", remedy: str = "") -> None:
        self.found, self.where, self.remedy = found, where, remedy
        super().__init__(": ".join(part for part in (where, found) if part) + (f". {remedy}" if remedy else ""))


class InputError(RollmakeError):
    """What the user gave us (config, input row, file) cannot be used as it is."""


class DataError(RollmakeError):
    """A file that rollmake or a peer wrote does not hold what it must."""


class ServerError(RollmakeError):
    """A server that a stage needs did not start, answer or know what it must."""


class OwedError(RollmakeError):
    """The stage ended in good order, but rollouts are still owed: run it again. Exit code 75 (EX_TEMPFAIL)."""


class Problems(InputError):
    """Several problems of one input, reported at once."""

    def __init__(self, problems: list[InputError], *, where: str = "") -> None:
        self.problems = problems
        lines = "".join(f"\n  - {problem}" for problem in problems)
        super().__init__(f"{len(problems)} problem{'s' if len(problems) != 1 else ''}{lines}", where=where)


def raise_all(problems: list[InputError], *, where: str = "") -> None:
    """Raise nothing, the one problem, or all of them together."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise Problems(problems, where=where)
