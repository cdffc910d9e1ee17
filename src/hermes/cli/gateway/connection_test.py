"""Whether a platform takes a secret, asked of the platform itself, before the secret is written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hermes.agent.models.endpoints import is_local, make_no_redirect_handler
from hermes.cli.command import Refused

TELEGRAM = "https://api.telegram.org"
PATIENCE_S = 15


def tried(platform: str, values: Mapping[str, str]) -> str | None:
    """Who we are there; None where nobody can be asked. `Refused` says why it does not work, without the secret."""
    if platform == "telegram":
        base = values.get("base_url", TELEGRAM).removesuffix("/bot")
        answer = _asked(f"{base}/bot{values['bot_token']}/getMe", "Telegram")
        name = (answer.get("result") or {}).get("username")
        return f"@{name}" if isinstance(name, str) else None
    if platform == "matrix" and "access_token" in values:
        where = f"{values['homeserver']}/_matrix/client/v3/account/whoami"
        name = _asked(where, "the homeserver", values["access_token"]).get("user_id")
        if name != values["user_id"]:
            raise Refused(f"the access token is that of {name}, not of {values['user_id']}")
        return str(name)
    if platform == "matrix":  # a password would make a new device with each attempt
        _asked(f"{values['homeserver']}/_matrix/client/versions", "the homeserver")
    return None


def _asked(address: str, who: str, token: str | None = None) -> dict[str, Any]:
    """What an address answers. Nothing that goes wrong is told with the address: the token may be in it."""
    from http.client import HTTPException
    from urllib import error, request

    proxies = request.ProxyHandler({} if is_local(address) else None)
    headers = {"User-Agent": "hermes", **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        asked = request.Request(address, headers=headers)
        with request.build_opener(proxies, make_no_redirect_handler()).open(
            asked, timeout=PATIENCE_S
        ) as answer:
            told = json.loads(answer.read(1_000_000))
    except error.HTTPError as problem:
        problem.close()
        if problem.code in (401, 403, 404):
            raise Refused(f"{who} does not take it ({problem.code})") from None
        raise Refused(f"{who} answers with an error ({problem.code})") from None
    except (OSError, HTTPException) as problem:
        raise Refused(f"{who} is out of reach: {_reason(problem)}") from None
    except ValueError:
        raise Refused(f"{who} does not answer as it should") from None
    return told if isinstance(told, dict) else {}


def _reason(problem: Exception) -> str:
    reason = getattr(problem, "reason", problem)
    return (reason.strerror if isinstance(reason, OSError) else None) or type(reason).__name__
