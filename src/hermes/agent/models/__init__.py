"""Models: the interface to language models, its implementations, prices, and the replay of stored messages.

Owns everything that depends on a provider's API. Imports no turn and no tools.
"""
