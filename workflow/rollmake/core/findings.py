"""Problems of many rows, told as few: the same problem once, with the places where it was found."""

from collections.abc import Iterator

from rollmake.core.errors import InputError

PLACES_SHOWN, FINDINGS_SHOWN = 5, 50


class Findings:
    """Collects problems by message; its memory does not grow with the number of rows that share one."""

    def __init__(self) -> None:
        self.places: dict[tuple[str, str], list[str]] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.untold = 0

    def add(self, found: str, where: str, remedy: str = "") -> None:
        """Note that `found` holds at `where`."""
        key = (found, remedy)
        if key not in self.counts and len(self.counts) == FINDINGS_SHOWN:
            self.untold += 1
            return
        places = self.places.setdefault(key, [])
        self.counts[key] = self.counts.get(key, 0) + 1
        if len(places) < PLACES_SHOWN:
            places.append(where)

    def add_error(self, error: InputError, where: str) -> None:
        """Note a problem that was raised without its place."""
        self.add(error.found, where, error.remedy)

    def __iter__(self) -> Iterator[InputError]:
        """One problem for each message, in order of first appearance; the places are named up to five."""
        for (found, remedy), places in self.places.items():
            more = self.counts[found, remedy] - len(places)
            where = ", ".join(places) + (f" and {more} more" if more else "")
            yield InputError(found, where=where, remedy=remedy)
        if self.untold:
            yield InputError(f"{self.untold} more problems, not listed")
