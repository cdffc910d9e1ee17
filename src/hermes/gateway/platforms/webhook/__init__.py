"""The webhook: signed HTTP in, the answer in the response or to a callback address.

Owns the signatures and the callbacks. `declaration` is data and imports no HTTP library. `adapter` is imported when
the platform is connected.
"""
