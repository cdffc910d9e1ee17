"""Adapters, a folder for each platform.

An adapter knows its SDK and the seam in `gateway.adapter`. It knows nothing of sessions, the store or the agent.
"""
