"""Interoperation: surfaces that speak a protocol of other programs, one folder for each protocol.

Owns the translation between a protocol and the conversation runtime. Imports the conversation, the agent, the store
handles and the configuration. Imports no other surface: neither chat, gateway, server, browser nor cli.
"""
