"""Telegram: polling or webhook, private chats, groups, topics, files and buttons.

`declaration` is data and imports no SDK. `adapter` is imported when the platform is connected.
"""
