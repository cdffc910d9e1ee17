"""Telegram: polling or webhook, private chats, groups, topics, files and buttons.

Owns the form of Telegram's updates. `declaration` is data and imports no SDK. `adapter` is imported when the platform
is connected.
"""
