"""The conversations of API requests: which one a request continues, its lock, and the requests that were
accepted but not answered yet.

Owns the files below `<home>/gateway/api-server`. Must not import the endpoints.
"""
