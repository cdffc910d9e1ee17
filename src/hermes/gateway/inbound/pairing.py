"""Access by a one-time code. The code is created at the machine, and the person who wants access sends it to
the bot.

`<home>/gateway/pairing.json` holds the paired people, the blocked people and digests of the valid codes. The
command line can change the file while the gateway runs. Therefore every change is made under a lock, and a
changed file is read again. Wrong codes are counted in memory only, so that a stranger cannot cause writes.

The file is signed (`FileSignature`). A change by another program makes the signature invalid, and the gateway
ignores the change: paired people keep their access, and nobody new gets access. The log,
`hermes gateway status` and `hermes doctor` report it.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from hermes import audit_log, caller, clock, errors
from hermes.atomic_files import lock_private_folder, replace_file
from hermes.clock import RecentEvents
from hermes.gateway.ops.file_signature import FileSignature
from hermes.logs import get_logger

FILE = "pairing.json"
LOOK_EVERY_S = 0.0005
"""Minimum time between two checks of the file for a change, in seconds. It is so short that a change takes effect
at once, but the checks that one message causes read the file's state only once."""
ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
"""The characters of a code. 0, O, 1, I and L are left out because they are easily confused."""
LENGTH = 8
MINUTES = 10.0
MOST_CODES = 5
"""Maximum number of valid codes. A received code is compared with each of them, and a comparison is slow."""
TRIES = 5
"""Maximum number of wrong codes from one person in an hour. Further codes are refused without a check."""
PAUSES_S = (0, 0, 0, 10, 60)
"""The pause in seconds after 0, 1, 2, 3 and 4 wrong codes. A code that is sent during the pause is refused
without a check."""

_log = get_logger(__name__)


class Paired(NamedTuple):
    """A person who has permanent access."""

    platform: str
    user_id: str
    user_name: str | None
    owner: bool
    since: float


class Blocked(NamedTuple):
    """A person who gets no answer, whatever other access they have."""

    platform: str
    user: str
    """The id or the handle of the person."""
    since: float


class _PairingFile(NamedTuple):
    """The content of the pairing file."""

    codes: list[dict[str, Any]]
    people: list[Paired]
    revision: int = 0
    """Increases with each change. A file with a lower revision is an old copy and is refused."""
    blocked: tuple[Blocked, ...] = ()


_NOTHING = _PairingFile([], [])


class Pairings:
    def __init__(self, folder: Path, now: Callable[[], float] = clock.now) -> None:
        self._folder, self._now = folder, now
        self._file = folder / FILE
        self._looked_at = 0.0
        """When the file was last checked for a change, by `monotonic`."""
        self._stamp: tuple[int, ...] | None = None
        self._kept = _NOTHING
        self._newest = 0
        self._seal = FileSignature("hermes pairing")
        self._reported: object = None
        self._lock = threading.Lock()
        self._wrong = RecentEvents(clock.HOUR)
        self._last_wrong: OrderedDict[str, float] = OrderedDict()
        self._blocked_users: tuple[_PairingFile | None, dict[str, frozenset[str]]] = (None, {})

    def make_code(self, platform: str | None = None, *, owner: bool = False, minutes: float = MINUTES) -> str:
        """Create a code for `platform`, or for any platform if None. Only a digest of the code is stored."""
        caller.refuse_tool("only a person can create a pairing code")
        code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        salt = secrets.token_hex(16)
        until = self._now() + minutes * clock.MINUTE
        entry = {
            "digest": _digest(code, salt),
            "salt": salt,
            "platform": platform,
            "owner": owner,
            "until": until,
        }
        with lock_private_folder(self._folder):
            file = self._read()
            self._write(file._replace(codes=[*self._valid_codes(file)[1 - MOST_CODES :], entry]))
        audit_log.record("pairing.code", platform=platform, owner=owner, minutes=int(minutes))
        return code

    def try_code(
        self,
        platform: str,
        user_id: str,
        user_name: str | None,
        code: str,
        on_wrong: Callable[[str], None] = lambda platform: None,
    ) -> Paired | None:
        """Grant access to the person `user_id` if they sent a valid pairing code, and return their new entry.
        Return None if the code is wrong or expired, or if the person has sent too many wrong codes. If a code is
        not accepted, `on_wrong` is called with the name of the platform."""
        now, person = self._now(), f"{platform}:{user_id}"
        if not self._valid_codes(self._read()):
            return None
        with lock_private_folder(self._folder):
            if not self._can_try(person, now):
                on_wrong(platform)
                return None
            file = self._read()
            good = self._valid_codes(file)
            right = next((entry for entry in good if _matches_code(entry, platform, code)), None)
            if right is None:
                self._count_wrong(platform, user_id, now)
                on_wrong(platform)
                return None
            before = _find_person(file.people, platform, user_id)
            is_owner = right["owner"] or (before is not None and before.owner)
            paired = Paired(platform, user_id, user_name, is_owner, before.since if before else now)
            people = [entry for entry in file.people if entry != before]
            codes = [entry for entry in good if entry is not right]
            self._write(file._replace(codes=codes, people=[*people, paired]))
        _record("pairing.used", paired)
        return paired

    def _can_try(self, person: str, now: float) -> bool:
        """Return whether a code from this person may be checked now. See `TRIES` and `PAUSES_S`."""
        wrong = self._wrong.count(person, now)
        if wrong >= TRIES:
            return False
        passed = now - self._last_wrong.get(person, 0.0)
        return not 0 <= passed < PAUSES_S[wrong]

    def _count_wrong(self, platform: str, user_id: str, now: float) -> None:
        person = f"{platform}:{user_id}"
        self._wrong.add(person, now)
        self._last_wrong[person] = now
        if len(self._last_wrong) > clock.MOST_REMEMBERED:
            self._last_wrong.popitem(last=False)
        times = self._wrong.count(person, now)
        _log.warning("wrong pairing code from %s, number %d in an hour", person, times)
        audit_log.record("pairing.wrong", platform=platform, user=user_id, times=times)

    def is_paired(self, platform: str, user_id: str) -> bool:
        return _find_person(self._current().people, platform, user_id) is not None

    def is_owner(self, platform: str, user_id: str) -> bool:
        person = _find_person(self._current().people, platform, user_id)
        return person is not None and person.owner

    def list_people(self) -> list[Paired]:
        """Return all paired people, in the order of pairing."""
        return list(self._read().people)

    def list_known(self) -> list[Paired]:
        """Return the paired people. If the pairing file is invalid, return the people of its last valid content,
        and do not log the problem."""
        try:
            return self.list_people()
        except errors.HermesError:
            return list(self._kept.people)

    def check(self, *, report: bool = False) -> str | None:
        """Return one line that says what is wrong with the pairing file, or None if the file is valid. With
        `report`, also log the problem, unless it was logged before."""
        if report:
            self._current()
        try:
            self._read()
        except errors.HermesError as problem:
            return str(problem)
        return None

    def hold_key(self) -> None:
        """Load the signing key and the pairing file into memory. From then on, the file is accepted only if it is
        signed with this key."""
        self._seal.hold_key()
        self._current()

    def revoke(self, platform: str, user: str) -> list[Paired]:
        """Take back the access of the paired person with the id `user` on `platform`. If no id matches, take back
        the access of all people with that name. Return the people who lost access."""
        caller.refuse_tool("only a person can revoke access")
        with lock_private_folder(self._folder):
            file = self._read()
            person = _find_person(file.people, platform, user)
            revoked = [person] if person else _find_named(file.people, platform, user)
            if revoked:
                self._write(file._replace(people=[person for person in file.people if person not in revoked]))
        for person in revoked:
            _record("pairing.revoked", person)
        return revoked

    def block(self, platform: str, user: str) -> list[Blocked]:
        """Block `user`, an id or a handle, on `platform`. If it is the handle of a paired person, also block their
        id, because a person can change their handle. Return the entries that were added to the pairing file."""
        caller.refuse_tool("only a person can block people")
        with lock_private_folder(self._folder):
            file = self._read()
            users = [user, *(person.user_id for person in _find_named(file.people, platform, user))]
            known = {(entry.platform, entry.user) for entry in file.blocked}
            fresh = [name for name in dict.fromkeys(users) if (platform, name) not in known]
            added = [Blocked(platform, name, self._now()) for name in fresh]
            if added:
                self._write(file._replace(blocked=(*file.blocked, *added)))
        for entry in added:
            audit_log.record("access.blocked", platform=platform, user=entry.user)
        return added

    def unblock(self, platform: str, user: str) -> list[Blocked]:
        """Remove the block of `user`, an id or a handle, on `platform`. Return the entries that were removed from
        the pairing file."""
        caller.refuse_tool("only a person can unblock people")
        with lock_private_folder(self._folder):
            file = self._read()
            users = {user, *(person.user_id for person in _find_named(file.people, platform, user))}
            names = {name.removeprefix("@").lower() for name in users}
            removed = [
                entry
                for entry in file.blocked
                if entry.platform == platform and entry.user.removeprefix("@").lower() in names
            ]
            if removed:
                self._write(
                    file._replace(blocked=tuple(entry for entry in file.blocked if entry not in removed))
                )
        for entry in removed:
            audit_log.record("access.unblocked", platform=platform, user=entry.user)
        return removed

    def list_blocked(self) -> list[Blocked]:
        return list(self._read().blocked)

    def list_blocked_users(self, platform: str) -> frozenset[str]:
        """Return the ids and handles of the people who are blocked on a platform."""
        file = self._current()
        if self._blocked_users[0] is not file:
            by_platform: dict[str, set[str]] = {}
            for entry in file.blocked:
                by_platform.setdefault(entry.platform, set()).add(entry.user)
            self._blocked_users = file, {name: frozenset(users) for name, users in by_platform.items()}
        return self._blocked_users[1].get(platform, frozenset())

    def adopt_unsealed(self) -> list[Paired] | None:
        """Sign a pairing file that an older version of Hermes wrote without a signature, and return its people. The
        file is signed only if no signing key was ever created. Otherwise another program must have written the
        unsigned file. Return None if there was nothing to sign or signing was not allowed."""
        if not self._file.exists() or self._seal.was_ever_made() or caller.is_started_by_tool():
            return None
        with lock_private_folder(self._folder):
            content = self._load()
            if "seal" in content or self._seal.was_ever_made():
                return None
            file = _parse_file(content)
            self._write(file)
        audit_log.record("pairing.adopted", people=_describe_people(file.people))
        return file.people

    def read_unchecked(self) -> list[Paired]:
        """Return the people in the pairing file without checking its signature. The result is shown to a person,
        who decides whether to accept the file."""
        return _parse_file(self._load()).people

    def accept(self, people: list[Paired]) -> None:
        """Sign the pairing file again after a person has confirmed that it holds the right `people`. Blocked people
        are kept, and all codes are dropped."""
        caller.refuse_tool("only a person can accept a changed pairing file")
        with lock_private_folder(self._folder):
            if _parse_file(self._load()).people != people:
                raise errors.HermesError(f"{self._file} was changed in the meantime; check it and try again")
            blocked = _parse_file(self._load()).blocked
            self._write(_PairingFile([], people, blocked=blocked))
        audit_log.record("pairing.accepted", people=_describe_people(people))

    # ------------------------------------------------------------ the file

    def _valid_codes(self, file: _PairingFile) -> list[dict[str, Any]]:
        return [code for code in file.codes if code["until"] > self._now()]

    def _current(self) -> _PairingFile:
        """Return the content of the pairing file if it is valid. Otherwise log the problem once and return the last
        valid content."""
        if monotonic() - self._looked_at < LOOK_EVERY_S:
            return self._kept
        self._looked_at = monotonic()
        try:
            return self._read()
        except errors.HermesError as problem:
            if self._reported != (mark := (self._stamp_or_none(), str(problem))):
                self._reported = mark
                _log.error("%s; no new person is admitted", problem)
                audit_log.record("pairing.ignored", problem=str(problem))
            return self._kept

    def _read(self) -> _PairingFile:
        """Return the content of the pairing file. Every change replaces the file, so it is read again only if it
        was replaced since the last call. Raise `BadConfig` if the file is invalid."""
        with self._lock:
            stamp = self._current_stamp()
            if stamp is None:
                self._kept, self._stamp = _NOTHING, None
            elif stamp != self._stamp:
                content = self._load()
                seal = content.pop("seal", None)
                if not self._seal.matches(content, seal):
                    raise self._tampered_error("its signature is not valid")
                file = _parse_file(content)
                if file.revision < self._newest:
                    raise self._tampered_error("it is an older version of the file")
                self._kept, self._stamp, self._newest = file, stamp, file.revision
            return self._kept

    def _current_stamp(self) -> tuple[int, ...] | None:
        try:
            stat = self._file.stat()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise errors.BadConfig(f"{self._file} cannot be read: {problem.strerror}") from problem
        return (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)

    def _stamp_or_none(self) -> tuple[int, ...] | None:
        try:
            return self._current_stamp()
        except errors.BadConfig:
            return None

    def _load(self) -> dict[str, Any]:
        try:
            content = json.loads(self._file.read_bytes())
            _parse_file(content)
        except OSError as problem:
            raise errors.BadConfig(f"{self._file} cannot be read: {problem.strerror}") from problem
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            raise errors.BadConfig(f"{self._file} has invalid content; correct it or delete it") from problem
        return dict(content)

    def _tampered_error(self, why: str) -> errors.BadConfig:
        return errors.BadConfig(
            f"{self._file} was changed by another program ({why});"
            " `hermes gateway pair --accept` lists the people in it and asks you to confirm them"
        )

    def _write(self, file: _PairingFile) -> None:
        revision = max(file.revision, self._newest, int(clock.now() * 1000)) + 1
        content: dict[str, Any] = {
            "codes": file.codes,
            "people": [person._asdict() for person in file.people],
            "revision": revision,
        }
        if file.blocked:
            content["blocked"] = [entry._asdict() for entry in file.blocked]
        content["seal"] = self._seal.compute(content)
        replace_file(self._file, json.dumps(content, indent=2).encode() + b"\n")
        with self._lock:  # no other process writes while the folder is locked
            self._kept = file._replace(revision=revision)
            self._stamp, self._newest = self._current_stamp(), revision


def find_code(text: str, *, alone: bool = True) -> str | None:
    """Return the pairing code in a text of the form `/pair CODE`, or None if there is none. With `alone`, a text
    that consists only of a code is accepted too."""
    match = re.fullmatch(r"\s*(/pair(?:@\w+)?\s+)?([0-9A-Za-z]{4})[ -]?([0-9A-Za-z]{4})\s*", text)
    if match is None or not (match[1] or alone):
        return None
    code = (match[2] + match[3]).upper()
    return code if set(code) <= set(ALPHABET) else None


def _digest(code: str, salt: str) -> str:
    """Return a slow hash of a code. Codes are so short that a fast hash could be cracked before they expire."""
    from hashlib import scrypt

    return scrypt(code.upper().encode(), salt=bytes.fromhex(salt), n=2**14, r=8, p=1, dklen=32).hex()


def _matches_code(entry: dict[str, Any], platform: str, code: str) -> bool:
    return entry["platform"] in (None, platform) and hmac.compare_digest(
        entry["digest"], _digest(code, entry["salt"])
    )


def _find_person(people: list[Paired], platform: str, user_id: str) -> Paired | None:
    return next(
        (person for person in people if (person.platform, person.user_id) == (platform, user_id)), None
    )


def _find_named(people: list[Paired], platform: str, name: str) -> list[Paired]:
    """Return those of `people` who were paired on `platform` under the handle or name `name`."""
    wanted = name.removeprefix("@").lower()
    return [
        person
        for person in people
        if person.platform == platform and (person.user_name or "").removeprefix("@").lower() == wanted
    ]


def _parse_file(content: dict[str, Any]) -> _PairingFile:
    people = [Paired(**person) for person in content["people"]]
    codes: list[dict[str, Any]] = [
        {name: code[name] for name in ("digest", "salt", "platform", "owner", "until")}
        for code in content["codes"]
    ]
    blocked = tuple(Blocked(**entry) for entry in content.get("blocked", ()))
    return _PairingFile(codes, people, int(content.get("revision", 0)), blocked)


def _record(action: str, person: Paired) -> None:
    audit_log.record(
        action,
        platform=person.platform,
        user=person.user_id,
        user_name=person.user_name,
        owner=person.owner,
    )


def _describe_people(people: list[Paired]) -> str:
    return ", ".join(
        f"{person.platform}:{person.user_id}{' (owner)' if person.owner else ''}" for person in people
    )
