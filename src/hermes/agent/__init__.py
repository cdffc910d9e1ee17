"""The agent: the turns of a conversation with a model, and the tools that the model can call.

Owns the turn, the answer built from the turn's events, the transcript under a lease, titles and the memory
flush. Imports the handles (`hermes.db`) and recall; imports no surface.
"""
