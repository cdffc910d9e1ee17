"""Access control: who may talk to the agent, who owns the machine, and how many messages a person may send.

Nobody has access by default. Access is granted by name (`allowed_users`, `owners`), by a code (`hermes
gateway pair`), or to everybody (`allow_all`). Bots never have access, because two bots would answer each
other without end. On platforms with a shared secret, everybody who knows the secret has access.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hermes import clock
from hermes.errors import HermesError
from hermes.gateway.inbound.access_log import AccessLog
from hermes.gateway.inbound.pairing import Paired, Pairings, find_code
from hermes.gateway.inbound_events import Source
from hermes.gateway.rate_limit import TokenBuckets
from hermes.gateway.registry import PLATFORMS
from hermes.gateway.settings import EVERYBODY, GatewaySettings, PlatformSettings
from hermes.logs import get_logger

_log = get_logger(__name__)


class AccessControl:
    def __init__(
        self, settings: GatewaySettings, pairings: Pairings, now: Callable[[], float] = clock.now
    ) -> None:
        self._settings, self._pairings, self._now = settings, pairings, now
        self._buckets = TokenBuckets(settings.messages_per_minute)
        self.access_log = AccessLog()
        self.on_wrong_code: Callable[[str], None] = lambda platform: None
        """Called with the platform after a wrong pairing code."""

    def change_settings(self, settings: GatewaySettings) -> None:
        """Use other settings of the gateway from now on. Called when the configuration is reloaded."""
        if settings.messages_per_minute != self._settings.messages_per_minute:
            self._buckets = TokenBuckets(settings.messages_per_minute)
        self._settings = settings

    def admit(self, source: Source) -> bool:
        """Return whether the sender in `source` has access, and record in the audit log that they were admitted or
        refused."""
        reason = self._find_reason(source)
        if reason is not None:
            self.access_log.record("access.admitted", source, reason)
        elif not source.is_bot:
            why = "blocked" if self.is_blocked(source) else "no access"
            self.access_log.record("access.refused", source, why)
        return reason is not None

    def is_admitted(self, source: Source) -> bool:
        """Return whether this person has access. Messages of other people reach neither the store nor the
        model."""
        return self._find_reason(source) is not None

    def is_blocked(self, source: Source) -> bool:
        """Return whether an operator blocked this person. A blocked person gets no answer, whatever other
        access they have."""
        return _is_among(self._pairings.list_blocked_users(source.platform), source)

    def _find_reason(self, source: Source) -> str | None:
        """Return what gives the sender in `source` access, such as `owners` or `paired`. Return None if they have
        no access."""
        platform = self._settings.platforms.get(source.platform)
        if platform is None or source.is_bot or self.is_blocked(source):
            return None
        if _has_shared_secret(source.platform):
            return "shared secret"
        if _is_among(platform.owners, source):
            return "owners"
        if _is_among(platform.allowed_users, source):
            return "allowed_users"
        if any(self._pairings.is_paired(source.platform, user_id) for user_id in _user_ids(source)):
            return "paired"
        return "allow_all" if platform.allow_all else None

    def is_owner(self, source: Source) -> bool:
        """Return whether the person owns the machine and may use its tools and memory."""
        platform = self._settings.platforms.get(source.platform)
        if platform is None or source.is_bot or self.is_blocked(source):
            return False
        if _is_among(platform.owners, source) or (
            EVERYBODY in platform.owners and _has_shared_secret(source.platform)
        ):
            return True
        return any(self._pairings.is_owner(source.platform, user_id) for user_id in _user_ids(source))

    def can_approve(self, source: Source) -> bool:
        """Return whether the person can approve actions in this chat. Only an owner in a private chat can.

        On platforms with a shared secret nobody can, because those platforms are used by programs.
        """
        return source.chat_type == "dm" and not _has_shared_secret(source.platform) and self.is_owner(source)

    def may_be_pairing(self, source: Source, text: str) -> bool:
        """Return whether the message may contain a pairing code, so that `try_pairing` must check it. If the sender
        already has access, only a message of the form `/pair CODE` may."""
        return source.chat_type == "dm" and find_code(text, alone=not self.is_admitted(source)) is not None

    def try_pairing(self, source: Source, text: str) -> Paired | None:
        """Grant access to a person who sends a valid pairing code in a private chat, and return their entry in the
        pairing file. Return None if no access was granted.

        A person who already has access must write `/pair CODE`. If they send a code without `/pair`, the code is a
        message for the agent.
        """
        if (
            source.chat_type != "dm"
            or source.is_bot
            or not source.user_id
            or _has_shared_secret(source.platform)
        ):
            return None
        if source.platform not in self._settings.platforms or self.is_blocked(source):
            return None
        code = find_code(text, alone=not self.is_admitted(source))
        if code is None:
            return None
        try:
            name = source.handle or source.user_name
            return self._pairings.try_code(
                source.platform, source.user_id, name, code, on_wrong=self.on_wrong_code
            )
        except HermesError as problem:  # a stranger's message must not cause a failure
            _log.error("a pairing code could not be checked: %s", problem)
            return None

    def pairing_problem(self) -> str | None:
        """Return what is wrong with the pairing file, or None if it is valid. Changes of an invalid file are
        ignored."""
        return self._pairings.check(report=True)

    def check_rate(self, source: Source) -> tuple[bool, bool]:
        """Charge one message to the rate limit of the sender. Return two values: whether the sender is within the
        limit, and if not, whether to notify them now."""
        if not self._settings.messages_per_minute:
            return True, False
        return self._buckets.take(f"{source.platform}:{source.participant or source.chat_id}", self._now())


def describe_access(settings: GatewaySettings, pairings: Pairings) -> Iterator[tuple[str, str]]:
    """Yield the name of each enabled platform, with one line that says who may talk to the agent there."""
    paired = pairings.list_known()
    for name, platform in settings.enabled.items():
        yield name, _describe_platform_access(platform, sum(person.platform == name for person in paired))


def _describe_platform_access(platform: PlatformSettings, paired: int) -> str:
    name = platform.name
    if _has_shared_secret(name):
        return "everybody who knows the shared secret"
    if platform.allow_all:
        return "everybody (allow_all)"
    named = sorted(platform.allowed_users | platform.owners)
    if named or paired:
        both = (", ".join(named), f"{paired} by pairing" if paired else "")
        return " and ".join(part for part in both if part)
    return (
        f"nobody yet: `hermes gateway pair {name}` makes a code, platforms.{name}.allowed_users names people"
    )


def _has_shared_secret(name: str) -> bool:
    return name in PLATFORMS and PLATFORMS[name].by_secret


def _user_ids(source: Source) -> set[str]:
    return {user_id for user_id in (source.user_id, source.user_id_alt) if user_id}


def _is_among(people: frozenset[str], source: Source) -> bool:
    """Return whether `people` contains the id or the unique handle of the person. Handles are
    case-insensitive."""
    if not people.isdisjoint(_user_ids(source)):
        return True
    if not source.handle:
        return False
    handle = source.handle.removeprefix("@").lower()
    return any(
        person.removeprefix("@").lower() == handle for person in people if not person.lstrip("-").isdecimal()
    )
