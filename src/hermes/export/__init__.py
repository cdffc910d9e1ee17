"""Exports: what to export (`plan`, `ancestry`), the formats, and the one writer that every surface uses.

Owns the formats and the files. A format takes conversations in order and a function that reads one session; it never
holds more than one session (`json_document`: two). `writer` puts its text into files, a stream or chunks,
`background` does so beside an event loop. Knows the store only by the verbs in
`plan.SessionSource`; imports no surface.
"""
