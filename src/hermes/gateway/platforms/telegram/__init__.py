"""The Telegram platform: polling or webhook, private chats, groups, topics, files and buttons.

Owns the parsing of Telegram updates. `declaration` is data and imports no SDK. `adapter` is imported when the
platform is connected.
"""
