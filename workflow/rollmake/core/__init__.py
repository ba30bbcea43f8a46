"""What rollmake decides: pure functions, without files, clock or network."""
