"""Keyboard input: the prompt line, history, completion, file mentions, questions.

Owns the keyboard. Imports no rendering of answers.
"""
