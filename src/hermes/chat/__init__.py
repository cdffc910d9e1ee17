"""TALKING: the conversation in a terminal. Knows the agent and the store; no other surface knows it."""
