"""The agent: the turns of a conversation with a model, and the tools that the model can call.

This folder owns the turn, the answer built from the turn's events, the transcript under a lease, titles and
the memory flush. It imports the store handles (`hermes.db`) and recall. It imports no surface.
"""
