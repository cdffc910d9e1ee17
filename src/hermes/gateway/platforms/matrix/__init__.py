"""The Matrix platform: login, sync, rooms and threads, encrypted or not.

Owns the login and the sync state. `declaration` is data and imports no SDK. `adapter` is imported when the
platform is connected.
"""
