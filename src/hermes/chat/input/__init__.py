"""Keyboard input: the prompt line, history, completion, file mentions, questions.

This folder owns the keyboard. It does not import the rendering of answers.
"""
