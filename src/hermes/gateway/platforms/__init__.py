"""Platform adapters, one folder for each platform.

Owns all code that depends on a platform's SDK. An adapter imports its SDK and the interface in
`gateway.adapter`. Adapters must not import sessions, the store or the agent.
"""
