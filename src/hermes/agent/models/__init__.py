"""Models: the seam to language models, providers behind it, prices, and replay of stored rows.

Owns everything that depends on a provider's interface. Imports no turn and no tools.
"""
