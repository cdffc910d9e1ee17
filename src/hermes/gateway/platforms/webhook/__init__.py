"""The webhook platform: signed HTTP requests, answered in the response or by a callback request.

Owns the signatures and the callbacks. `declaration` is data and imports no HTTP library. `adapter` is
imported when the platform is connected.
"""
