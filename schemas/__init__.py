"""The JSON Schemas of rollmake's files, installed with the library."""
