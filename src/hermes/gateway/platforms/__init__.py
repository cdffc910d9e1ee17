"""Adapters, a folder for each platform.

Owns everything that depends on a platform's SDK. An adapter imports its SDK and the seam in `gateway.adapter`;
nothing of sessions, the store or the agent.
"""
