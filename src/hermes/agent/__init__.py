"""THINKING: a model, one turn of a conversation with it, and what it may do. Knows no surface."""
