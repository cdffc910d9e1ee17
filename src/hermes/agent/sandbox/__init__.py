"""The sandbox of tools: which files a command can access, and the operating system features that enforce it.

This folder owns the view (the readable, writable and hidden files), the environment of a command, and the
kinds of sandbox. It imports no tools, no turn and no surface.
"""
