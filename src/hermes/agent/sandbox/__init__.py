"""The wall around what tools do: which files a command can reach, and the operating system's means to hold it.

Owns the view (readable, writable, hidden), the child's environment, and the kinds of sandbox. Imports nothing
of the tools, the turn or the surfaces.
"""
