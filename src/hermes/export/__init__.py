"""How stored conversations are written for other places: a file per format, each a stream of text.

A format is a function of the conversations, in order, and of a way to read one session; it gives pieces of text, and
never holds more than one session. It knows neither the store nor where the text goes.
"""
