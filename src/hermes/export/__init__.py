"""Export formats: JSONL, Markdown, HTML and traces, each a stream of text.

A format takes conversations in order and a function that reads one session; it never holds more than one session.
Knows neither the store's engine nor where the text goes.
"""
