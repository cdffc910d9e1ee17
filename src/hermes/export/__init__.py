"""Exports: the selection (`plan`, `ancestry`), the formats, and the writer that every surface uses.

This folder owns the formats and the files. A format receives conversations in order and a function that loads a
session. It keeps at most one session in memory (`json_document`: two). `writer` writes the text to files or a
stream, or returns it in chunks. `background` runs the writer in a thread beside an event loop. The folder uses
the store only through the methods of `plan.SessionSource`. It imports no surface.
"""
