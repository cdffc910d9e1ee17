"""Letting people in by a one-time code: made here at the machine, sent to the bot by whoever is to be let in.

`<home>/gateway/pairing.json` holds digests of the codes that are still good, and who used one. The command makes codes
and takes people out again while the gateway runs, so every change is made under a lock, and a file that was changed is
read again. Wrong codes are counted in memory only: a stranger cannot make us write.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hermes import clock, errors
from hermes.gateway.counting import Recently
from hermes.logs import log_of
from hermes.partial import alone_in, replace_file

FILE = "pairing.json"
ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
"""Without what is taken for something else when it is read aloud or copied: 0 and O, 1, I and L."""
LENGTH = 8
MINUTES = 10.0
MOST_CODES = 5
"""Each of them is compared with what a stranger sends, at some cost."""
TRIES = 5
"""Wrong codes of one person in an hour; then nothing more is looked at."""

_log = log_of(__name__)


class Paired(NamedTuple):
    """Somebody who was let in for good."""

    platform: str
    user_id: str
    user_name: str | None
    owner: bool
    since: float


class _Kept(NamedTuple):
    """What the file says."""

    codes: list[dict[str, Any]]
    people: list[Paired]


_NOTHING = _Kept([], [])


class Pairings:
    def __init__(self, folder: Path, now: Callable[[], float] = clock.now) -> None:
        self._folder, self._now = folder, now
        self._file = folder / FILE
        self._stamp: tuple[int, ...] | None = None
        self._kept = _NOTHING
        self._lock = threading.Lock()
        self._wrong = Recently(clock.HOUR)

    def make_code(self, platform: str | None = None, *, owner: bool = False, minutes: float = MINUTES) -> str:
        """A new code, for one platform or for any. It is shown now and never again."""
        code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        salt = secrets.token_hex(16)
        until = self._now() + minutes * clock.MINUTE
        made = {
            "digest": _digest(code, salt),
            "salt": salt,
            "platform": platform,
            "owner": owner,
            "until": until,
        }
        with alone_in(self._folder):
            kept = self._read()
            self._write(kept._replace(codes=[*self._good(kept)[1 - MOST_CODES :], made]))
        return code

    def try_code(self, platform: str, user_id: str, user_name: str | None, code: str) -> Paired | None:
        """Let somebody in who knows a code; None if it is wrong, too late, or they tried too often."""
        now, person = self._now(), f"{platform}:{user_id}"
        if not self._good(self._read()):
            return None
        with alone_in(self._folder):
            if self._wrong.count(person, now) >= TRIES:
                return None
            kept = self._read()
            good = self._good(kept)
            right = next((one for one in good if _fits(one, platform, code)), None)
            if right is None:
                self._wrong.add(person, now)
                return None
            before = _found(kept.people, platform, user_id)
            is_owner = right["owner"] or (before is not None and before.owner)
            made = Paired(platform, user_id, user_name, is_owner, before.since if before else now)
            people = [one for one in kept.people if one != before]
            self._write(_Kept([one for one in good if one is not right], [*people, made]))
        return made

    def is_paired(self, platform: str, user_id: str) -> bool:
        return _found(self._looked_up().people, platform, user_id) is not None

    def is_owner(self, platform: str, user_id: str) -> bool:
        found = _found(self._looked_up().people, platform, user_id)
        return found is not None and found.owner

    def all(self) -> list[Paired]:
        """Everybody who was let in, in that order."""
        return list(self._read().people)

    def revoke(self, platform: str, user: str) -> list[Paired]:
        """Let somebody in no longer, by their id or name; those who were meant."""
        name = user.removeprefix("@").lower()
        with alone_in(self._folder):
            kept = self._read()
            people = [one for one in kept.people if one.platform == platform]
            gone = [one for one in people if one.user_id == user]
            gone = gone or [one for one in people if (one.user_name or "").removeprefix("@").lower() == name]
            if gone:
                self._write(kept._replace(people=[one for one in kept.people if one not in gone]))
        return gone

    # ------------------------------------------------------------ the file

    def _good(self, kept: _Kept) -> list[dict[str, Any]]:
        return [one for one in kept.codes if one["until"] > self._now()]

    def _looked_up(self) -> _Kept:
        """What the file says, for whoever has to decide now: a file that makes no sense lets nobody in."""
        try:
            return self._read()
        except errors.HermesError as problem:
            _log.error("%s; nobody who was paired is let in", problem)
            return _NOTHING

    def _read(self) -> _Kept:
        """What the file says, read again if it was changed. It is always a new file that takes its place."""
        with self._lock:
            try:
                stat = self._file.stat()
                stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
                if stamp != self._stamp:
                    self._kept = _parsed(self._file.read_bytes())
                    self._stamp = stamp
            except FileNotFoundError:
                self._kept, self._stamp = _NOTHING, None
            except OSError as problem:
                raise errors.BadConfig(f"{self._file} cannot be read: {problem.strerror}") from problem
            except (ValueError, TypeError, KeyError) as problem:
                raise errors.BadConfig(
                    f"{self._file} makes no sense; put it right or take it away"
                ) from problem
            return self._kept

    def _write(self, kept: _Kept) -> None:
        told = {"codes": kept.codes, "people": [one._asdict() for one in kept.people]}
        replace_file(self._file, json.dumps(told, indent=2).encode() + b"\n")


def code_in(text: str, *, alone: bool = True) -> str | None:
    """The code that somebody sent: `/pair CODE`, or with `alone` nothing but the code; None if there is none."""
    found = re.fullmatch(r"\s*(/pair(?:@\w+)?\s+)?([0-9A-Za-z]{4})[ -]?([0-9A-Za-z]{4})\s*", text)
    if found is None or not (found[1] or alone):
        return None
    code = (found[2] + found[3]).upper()
    return code if set(code) <= set(ALPHABET) else None


def _digest(code: str, salt: str) -> str:
    """Slow, because a code is short: a copy of the file is no use for as long as the code is good."""
    from hashlib import scrypt

    return scrypt(code.upper().encode(), salt=bytes.fromhex(salt), n=2**14, r=8, p=1, dklen=32).hex()


def _fits(kept: dict[str, Any], platform: str, code: str) -> bool:
    return kept["platform"] in (None, platform) and hmac.compare_digest(
        kept["digest"], _digest(code, kept["salt"])
    )


def _found(people: list[Paired], platform: str, user_id: str) -> Paired | None:
    return next((one for one in people if (one.platform, one.user_id) == (platform, user_id)), None)


def _parsed(data: bytes) -> _Kept:
    told = json.loads(data)
    people = [Paired(**one) for one in told["people"]]
    codes: list[dict[str, Any]] = [
        {name: one[name] for name in ("digest", "salt", "platform", "owner", "until")}
        for one in told["codes"]
    ]
    return _Kept(codes, people)
