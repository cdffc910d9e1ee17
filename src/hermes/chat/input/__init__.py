"""What a person types: the prompt line, history, completion, pastes, file mentions, questions.

Owns the keyboard. Imports no rendering of answers.
"""
