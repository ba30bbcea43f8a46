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
        if self.number and not self.unended and raw.endswith(b"}\n") and b"\r" not in raw:
            self.number += 1
            return [(self.number, raw[:-1])]
        if not self.number and raw.startswith(BOM):
            self.bom, raw = True, raw[len(BOM) :]
        self.unended = not raw.endswith((b"\n", b"\r"))
        self.crlf += raw.endswith(b"\r\n")
        self.cr += raw.endswith(b"\r")
        parts = raw.removesuffix(b"\n").removesuffix(b"\r").split(b"\r")
        self.cr += len(parts) - 1
        numbered = [(self.number + place, part) for place, part in enumerate(parts, 1) if part.strip()]
        self.number += len(parts)
        self.blank += len(parts) - len(numbered)
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
