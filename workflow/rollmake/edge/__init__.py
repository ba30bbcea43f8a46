"""Where rollmake meets the world: files, journal, HTTP, child processes, schemas."""
