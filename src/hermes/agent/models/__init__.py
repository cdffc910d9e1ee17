"""Models: the interface to language models, its implementations, prices, and the replay of stored messages.

This folder owns everything that depends on a provider's API. It imports no turn and no tools.
"""
