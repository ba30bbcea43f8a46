"""Lines of an input file: what ends one, and what may stand around them."""

BOM = b"\xef\xbb\xbf"


class Reading:
    """Splits the bytes of one file into lines and counts what is not as plain as it could be.

    `\\n`, `\\r\\n` and a lone `\\r` end a line, as for NeMo Gym's reader; U+2028 and its like are text.
    """

    def __init__(self) -> None:
        self.number = self.blank = self.crlf = self.cr = 0
        self.bom = self.unended = False

    def split(self, raw: bytes) -> list[tuple[int, bytes]]:
        """Number (1-based) and text of each non-blank line in `raw`, which goes up to a `\\n` or the end of the file."""
        if not self.number and raw.startswith(BOM):
            self.bom, raw = True, raw[len(BOM) :]
        if b"\r" in raw:
            crlf = raw.count(b"\r\n")
            self.crlf += crlf
            self.cr += raw.count(b"\r") - crlf
            raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self.unended = not raw.endswith(b"\n")
        lines = raw.removesuffix(b"\n").split(b"\n")
        numbered = [(number, line) for number, line in enumerate(lines, self.number + 1) if line and not line.isspace()]
        self.number += len(lines)
        self.blank += len(lines) - len(numbered)
        return numbered

    def remarks(self) -> list[str]:
        """One sentence for each oddity that was accepted."""
        told = {
            "passed over a byte order mark": self.bom,
            f"passed over blank lines: {self.blank}": self.blank,
            f"lines that end in CRLF: {self.crlf}": self.crlf,
            f"lines that end in a lone carriage return: {self.cr}": self.cr,
            "the last line has no newline; it is the same task as equal lines all the same": self.number
            and self.unended,
        }
        return [text for text, holds in told.items() if holds]
