"""Links in an answer. The screen shows the target of a link, unless the text of the link already shows it.

A terminal hides the target of a link behind its text, so `[bank.example](https://other.example)` would look
like a link to the bank. The target is shown in ASCII: a host name in another script appears in its `xn--`
form. In a terminal without clickable links (OSC 8), the whole address is shown, so that it can be copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from hermes.rendering_check import LABEL
from hermes.text import is_misleading, show_target


class _Address(str):
    """The normalised target of a link. `written` is the target as it was written in the Markdown source."""

    written = ""


class LinkParser(MarkdownIt):
    def normalizeLink(self, url: str) -> str:  # noqa: N802  its name in the library
        address = _Address(super().normalizeLink(url))
        address.written = url
        return address


def append_targets(tokens: Sequence[Token], *, clickable: bool = True) -> Iterator[Token]:
    """Yield the tokens of a line. If the text of a link does not show its target and title, insert them as
    text after the link.

    If `clickable` is False, the targets are shown in full, and each link becomes plain text.

    An image becomes text, because rich would draw it before its paragraph. `meta["target"]` of a token is the
    target as written in the source.
    """
    target: object = None
    title: object = None
    text = ""
    label, waiting = "", ""
    for token in tokens:
        if waiting:
            # The label of a reference link is printed before the target.
            yield Token("text", "", 0, content=f"{label}{waiting}")
            token.content = token.content.removeprefix(label)
            waiting = ""
        if token.type == "image":
            source = token.attrs.get("src", "")
            label = f"🌆 {token.content} ({_show(source, token.attrs.get('title'), is_whole=not clickable)})"
            yield Token("text", "", 0, content=label, meta={"target": _get_written(source)})
            text += token.content
            continue
        if token.type == "link_open":
            target, title, text = token.attrs.get("href", ""), token.attrs.get("title"), ""
            if clickable:
                yield token
        elif token.type == "link_close":
            label = str(token.meta.get(LABEL, ""))
            end = token if clickable else Token("text", "", 0)
            end.meta = {"target": _get_written(target)}
            yield end
            if title or is_misleading(text, str(target)):
                waiting = f" ({_show(target, title, is_whole=not clickable)})"
        else:
            yield token
            text += " " if token.type == "softbreak" else token.content
    if waiting:
        yield Token("text", "", 0, content=f"{label}{waiting}")


def _show(target: object, title: object, *, is_whole: bool) -> str:
    label = show_target(str(target), is_whole=is_whole)
    return f'{label} "{title}"' if title else label


def _get_written(target: object) -> str:
    return target.written if isinstance(target, _Address) else str(target)
