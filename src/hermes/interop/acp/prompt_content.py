"""Converts the blocks of a prompt from an editor to the content of a stored message, and back.
The text of an attached file follows the typed text, in the same format as in the terminal. Lists and previews
recognise this format.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import image_block, text_block
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from hermes import errors
from hermes.agent.tool import shorten_middle
from hermes.message_content import PICTURE, detect_picture_type, list_parts
from hermes.recall.tool.prompt_safety import close_fence, fence_text, to_one_line
from hermes.text import extract_searchable_text, format_size

Block = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)

LARGEST_PICTURE = 5_000_000
"""The maximum size of a picture, in bytes. All providers accept pictures of this size."""
LONGEST_NAME = 500


class PromptRefused(errors.HermesError):
    """The prompt has content that cannot be sent to a model. Nothing was stored."""


def read_prompt(blocks: Sequence[Block]) -> Any:
    """Return the content of a message: a text, or a list of parts if there are pictures. Raise `PromptRefused` if a
    block is not supported."""
    typed, attached, pictures = "", list[str](), list[dict[str, Any]]()
    for block in blocks:
        match block:
            case TextContentBlock():
                typed += block.text
            case ResourceContentBlock():
                typed = _mention(typed, _describe_link(block))
            case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                name = _name_file(resource.uri)
                typed = _mention(typed, name)
                attached.append(f"[file {name}]\n{fence_text(shorten_middle(resource.text))}")
            case EmbeddedResourceContentBlock(resource=BlobResourceContents() as resource):
                name = _name_file(resource.uri)
                pictures.append(_make_picture(resource.blob, name))
                attached.append(f"[picture {name}]")
            case ImageContentBlock():
                name = _name_file(block.uri) if block.uri else str(len(pictures) + 1)
                pictures.append(_make_picture(block.data, f"picture {name}"))
                attached.append(f"[picture {name}]")
            case _:
                raise PromptRefused("audio is not supported; the prompt was not sent")
    if not typed.strip() and not attached:
        raise PromptRefused("the prompt is empty")
    text = "\n\n".join([close_fence(typed), *attached]) if attached else typed
    return [{"type": "text", "text": text}, *pictures] if pictures else text


def has_only_text(blocks: Sequence[Block]) -> bool:
    return all(isinstance(block, TextContentBlock) for block in blocks)


def list_blocks(content: object) -> Iterator[TextContentBlock | ImageContentBlock]:
    """Yield the content of a stored message as blocks for the editor."""
    for kind, value in list_parts(content):
        picture = _read_picture(value) if kind == "picture" else None
        if picture is not None:
            yield picture
            continue
        text = PICTURE if kind == "picture" else extract_searchable_text(value)
        if text:
            yield text_block(text)


def _mention(typed: str, name: str) -> str:
    """Return the typed text with the name of a file appended. A space separates them."""
    return f"{typed}{'' if not typed or typed[-1].isspace() else ' '}{name}"


def _describe_link(link: ResourceContentBlock) -> str:
    address = urlsplit(link.uri)
    if address.scheme in ("", "file"):
        return _name_file(link.uri)
    label = to_one_line(link.title or link.name, LONGEST_NAME)
    return f"[{label}]({to_one_line(link.uri, LONGEST_NAME)})"


def _name_file(uri: str) -> str:
    """Return the name by which the prompt refers to an attached resource. For a file on this machine, this is its path,
    with the numbers of the selected lines. Otherwise it is the address `uri`."""
    address = urlsplit(uri)
    if address.scheme not in ("", "file"):
        return to_one_line(uri, LONGEST_NAME)
    lines = f":{address.fragment.removeprefix('L')}" if address.fragment.startswith("L") else ""
    return to_one_line(f"{PurePosixPath(unquote(address.path))}{lines}", LONGEST_NAME)


def _make_picture(data: str, name: str) -> dict[str, Any]:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise PromptRefused(f"{name} is not valid base64; the prompt was not sent") from None
    media_type = detect_picture_type(content)
    if media_type is None:
        raise PromptRefused(
            f"{name} is not a PNG, JPEG, GIF or WebP picture, and other binary files are not supported;"
            " the prompt was not sent"
        )
    if len(content) > LARGEST_PICTURE:
        raise PromptRefused(
            f"{name} is too large ({format_size(len(content))}, at most {format_size(LARGEST_PICTURE)});"
            " the prompt was not sent"
        )
    url = f"data:{media_type};base64,{base64.b64encode(content).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _read_picture(part: Any) -> ImageContentBlock | None:
    """Return the picture in a part of a stored message as a block for the editor. Return None if the part contains only
    the address of the picture and not its data."""
    holder = part.get("image_url") if isinstance(part, dict) else None
    url = holder.get("url") if isinstance(holder, dict) else holder
    if not isinstance(url, str) or not url.startswith("data:image/"):
        return None
    head, _, data = url.partition(",")
    return image_block(data, head.removeprefix("data:").partition(";")[0])
