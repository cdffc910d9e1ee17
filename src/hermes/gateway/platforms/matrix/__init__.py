"""Matrix: login, sync, rooms and threads, encrypted or not.

`declaration` is data and imports no SDK. `adapter` is imported when the platform is connected.
"""
