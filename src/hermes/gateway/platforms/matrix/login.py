"""Login with a configured token, a stored token, or the password.

The adapter uses the same device as long as the server knows it, because other people encrypt their messages for the
keys of that device.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from aiohttp import ClientTimeout
from nio import AsyncClient, AsyncClientConfig
from nio.client.async_client import client_session
from nio.store import SqliteStore

from hermes.gateway.adapter import Misconfigured, Undeliverable
from hermes.gateway.platform_options import read_options
from hermes.gateway.platforms.matrix.declaration import MatrixOptions
from hermes.gateway.platforms.matrix.errors import SignedOut, call_server
from hermes.gateway.platforms.matrix.state import KEYS, Login, StateFiles
from hermes.gateway.settings import PlatformSettings

# nio's warnings quote the text of unusual messages, so only errors are logged.
if not logging.getLogger("nio").level:
    logging.getLogger("nio").setLevel(logging.ERROR)

_REQUEST = 50.0
"""Request timeout in seconds. Syncs have their own timeout."""


class AccountSettings(NamedTuple):
    """The Matrix account and its credentials."""

    homeserver: str
    user_id: str
    access_token: str
    password: str
    device_name: str
    encryption: bool


def read_account_settings(settings: PlatformSettings) -> AccountSettings:
    """Read the account settings. Raise `Misconfigured` if a required setting is missing."""
    options = read_options(MatrixOptions, settings)
    if not options.homeserver:
        raise Misconfigured("matrix: MATRIX_HOMESERVER is not set")
    account = AccountSettings(
        options.homeserver,
        (options.user_id or "").strip(),
        (options.access_token or "").strip(),
        options.password or "",
        options.device_name,
        options.encryption,
    )
    if not account.access_token and not account.password:
        raise Misconfigured("matrix: neither MATRIX_ACCESS_TOKEN nor MATRIX_PASSWORD is set")
    if not account.access_token and not account.user_id:
        raise Misconfigured("matrix: MATRIX_USER_ID is not set")
    return account


class Client(AsyncClient):  # type: ignore[misc]  # nio publishes no types
    """A client that follows no redirects, so that token, password and messages go only to the configured homeserver.
    Only downloads of files may be redirected. aiohttp does not send the token to the other host.
    """

    async def _send_once(
        self,
        method: str,
        path: str,
        data: Any = None,
        headers: dict[str, str] | None = None,
        trace_context: Any = None,
        timeout: float | None = None,
    ) -> Any:
        is_file = method.upper() == "GET" and path.startswith("/_matrix/client/v1/media/download/")
        response = await self.client_session.request(
            method,
            self.homeserver + path,
            data=data,
            ssl=self.ssl,
            headers=headers,
            trace_request_ctx=trace_context,
            timeout=ClientTimeout(total=self.config.request_timeout if timeout is None else timeout),
            allow_redirects=is_file,
        )
        if 300 <= response.status < 400:
            response.release()
            raise Misconfigured(
                f"matrix: {urlsplit(self.homeserver).hostname} redirects ({response.status});"
                " set MATRIX_HOMESERVER to the target of the redirect"
            )
        return response

    send = client_session(_send_once)


async def sign_in(account: AccountSettings, state_files: StateFiles) -> AsyncClient:
    """Log in to the Matrix account, and return the client with its encryption keys loaded. The caller must close
    the client."""
    client = Client(
        account.homeserver,
        account.user_id,
        store_path=str(state_files.prepare()),
        config=AsyncClientConfig(
            store=SqliteStore,
            store_name=KEYS,
            encryption_enabled=account.encryption,
            max_limit_exceeded=0,  # retries are up to the gateway, not the library
            max_timeouts=0,
            request_timeout=_REQUEST,
        ),
    )
    try:
        await (
            _sign_in_by_token(client, account)
            if account.access_token
            else _sign_in_by_password(client, account, state_files)
        )
    except BaseException:
        await close_client(client)
        raise
    return client


async def close_client(client: AsyncClient) -> None:
    await client.close()
    if client.store:
        client.store.database.close()


async def _sign_in_by_token(client: AsyncClient, account: AccountSettings) -> None:
    await _restore_login(client, account.access_token, account)
    if account.user_id.startswith("@") and client.user_id != account.user_id:
        raise Misconfigured(f"matrix: the access token belongs to {client.user_id}, not to {account.user_id}")


async def _sign_in_by_password(
    client: AsyncClient, account: AccountSettings, state_files: StateFiles
) -> None:
    before = state_files.login(account.homeserver, account.user_id)
    if before and before.access_token:
        try:
            await _restore_login(client, before.access_token, account)
        except SignedOut as out:
            # A device that the server has deleted cannot be restored with its old keys.
            before = before._replace(access_token="") if out.soft else None
            client.access_token = ""
        else:
            return
    client.device_id = before.device_id if before else ""
    try:
        answer = await call_server(client.login(account.password, account.device_name), "signing in")
    except Undeliverable as error:
        raise Misconfigured(f"{error}; check MATRIX_USER_ID and MATRIX_PASSWORD") from error
    state_files.save_login(Login(account.homeserver, account.user_id, answer.device_id, answer.access_token))


async def _restore_login(client: AsyncClient, token: str, account: AccountSettings) -> None:
    client.access_token = token
    me = await call_server(client.whoami(), "signing in")
    if account.encryption and not me.device_id:
        raise Misconfigured("matrix: the access token has no device, which encryption needs")
    client.restore_login(me.user_id, me.device_id or "", token)
