"""Explains to the person why an answer of a model ended early: one line with advice.

The store keeps the finish reason as the provider sent it.
"""

from __future__ import annotations

LENGTH, FILTERED = "length", "content_filter"
_SPELLINGS = {
    LENGTH: LENGTH,
    "max_tokens": LENGTH,
    "max_output_tokens": LENGTH,
    FILTERED: FILTERED,
    "safety": FILTERED,
}

CUT_AT_LENGTH = (
    'The answer stopped at the model\'s length limit. Say "go on" for the rest, or ask for less at once.'
)
FILTERED_ANSWER = (
    "The provider's content filter stopped the answer. Ask in other words, or use another model."
)
NOTHING_BUT_REASONING = "The model sent only reasoning and no answer. Ask again, or use another model."
NO_ANSWER_WITHIN_LENGTH = (
    "The model reached its length limit before the answer began: all of it went to reasoning. "
    "Ask for less at once, or use another model."
)
NO_ANSWER_FILTERED = (
    "The provider's content filter stopped the answer before it began. "
    "Ask in other words, or use another model."
)


def normalize_reason(reason: object) -> str | None:
    """Return the finish reason `length` or `content_filter` for any known spelling of it by a provider. Return None
    for every other value."""
    return _SPELLINGS.get(reason.lower()) if isinstance(reason, str) else None


def explain_reason(reason: str | None, *, is_empty: bool) -> str | None:
    """Return a notice for the person about an answer that ended with this finish reason; None if no notice is needed.
    `is_empty` says whether the answer has no visible text."""
    match normalize_reason(reason):
        case "length":
            return NO_ANSWER_WITHIN_LENGTH if is_empty else CUT_AT_LENGTH
        case "content_filter":
            return NO_ANSWER_FILTERED if is_empty else FILTERED_ANSWER
        case _:
            return NOTHING_BUT_REASONING if is_empty else None
