"""Files of messages: offers them to the gateway, downloads and decrypts them on demand, and uploads long answers."""

from __future__ import annotations

import asyncio
import re
from io import BytesIO
from typing import Any

from nio import AsyncClient
from nio.crypto.attachments import decrypt_attachment
from nio.exceptions import EncryptionError

from hermes.gateway.adapter import Undeliverable, Unreachable
from hermes.gateway.inbound_events import OfferedFile
from hermes.gateway.platforms.matrix.errors import call_server
from hermes.gateway.platforms.matrix.room_events import File

_URI = re.compile(r"mxc://([\w.:\[\]-]+)/([\w-]+)")
_PATIENCE = 300.0
_TEXT = "text/markdown"
_CHUNK = 64 * 1024
_SPARE = 1024 * 1024
_LARGEST = 100 * 1024 * 1024
"""Maximum size of a file whose message does not state a size."""


def offer_file(client: AsyncClient, file: File) -> OfferedFile:
    return OfferedFile(
        file.kind, file.name, file.media_type, file.size, lambda: fetch_file(client, file), file._asdict()
    )


async def fetch_file(client: AsyncClient, file: File) -> bytes:
    data: bytes = await call_server(_download(client, file), "fetching a file", within=_PATIENCE)
    return await asyncio.to_thread(_decrypt, data, file.secret) if file.secret else data


async def upload_file(client: AsyncClient, name: str, content: bytes, *, encrypt: bool) -> dict[str, Any]:
    """Upload a text file. Return the content of a message with the file."""
    keys: dict[str, Any] = {}

    async def upload() -> Any:
        answer, secret = await client.upload(
            BytesIO(content), _TEXT, name, encrypt=encrypt, filesize=len(content)
        )
        keys.update(secret or {})
        return answer

    answer = await call_server(upload(), "uploading a file", within=_PATIENCE)
    place = {"file": keys | {"url": answer.content_uri}} if encrypt else {"url": answer.content_uri}
    return {
        "msgtype": "m.file",
        "body": name,
        "filename": name,
        "info": {"mimetype": _TEXT, "size": len(content)},
        **place,
    }


async def _download(client: AsyncClient, file: File) -> bytes:
    """Download a file. Raise `Undeliverable` if the file is much larger than announced, because the gateway has checked
    only the announced size."""
    where = _URI.fullmatch(file.uri)
    if not where:
        raise Undeliverable("matrix: a file has no address")
    most = _LARGEST if file.size is None else 2 * file.size + _SPARE
    data = bytearray()
    response = await client.send(
        "GET",
        f"/_matrix/client/v1/media/download/{where[1]}/{where[2]}",
        headers={"Authorization": f"Bearer {client.access_token}"},
        timeout=_PATIENCE,
    )
    async with response:
        if response.status != 200:
            kind = Undeliverable if 400 <= response.status < 500 else Unreachable
            raise kind(f"matrix: fetching a file: {response.status}")
        async for chunk in response.content.iter_chunked(_CHUNK):
            data += chunk
            if len(data) > most:
                raise Undeliverable("matrix: a file is larger than announced")
    return bytes(data)


def _decrypt(data: bytes, secret: dict[str, Any]) -> bytes:
    try:
        plain: bytes = decrypt_attachment(data, secret["key"]["k"], secret["hashes"]["sha256"], secret["iv"])
    except (EncryptionError, KeyError, TypeError, ValueError) as error:
        raise Undeliverable(f"matrix: cannot decrypt a file: {error}") from error
    return plain
