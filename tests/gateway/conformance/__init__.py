"""Scenarios that every platform must pass. They use the real command, the real SDKs and a model server over
HTTP.
"""
