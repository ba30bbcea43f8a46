"""Writing lines to many files at once, without keeping many files open."""

from pathlib import Path
from types import TracebackType
from typing import Self

from rollmake.edge.files import sync_file, sync_folder

BUFFER_BYTES = 64 << 20


class Spreader:
    """Appends lines to files below `folder`; they are on disk when the block ends well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._buffers: dict[str, list[bytes]] = {}
        self._buffered = 0
        self._written: set[Path] = set()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
            for path in self._written:
                sync_file(path)
            for folder in {path.parent for path in self._written} | {self.folder}:
                sync_folder(folder)

    def create(self, name: str) -> None:
        """Make sure that the file exists, even if no line is added to it."""
        self._buffers.setdefault(name, [])

    def add(self, name: str, line: bytes) -> None:
        """Append a line, given without its newline."""
        self._buffers.setdefault(name, []).append(line + b"\n")
        self._buffered += len(line)
        if self._buffered > BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        for name, lines in self._buffers.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.writelines(lines)
            self._written.add(path)
        self._buffers.clear()
        self._buffered = 0
