"""The sandbox of tools: which files a command can access, and the operating system features that enforce it.

Owns the view (readable, writable, hidden), the child's environment, and the kinds of sandbox. Imports nothing
of the tools, the turn or the surfaces.
"""
