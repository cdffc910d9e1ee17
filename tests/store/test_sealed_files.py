"""The format of sealed files. The tests use a key, but need no SQLite library with ciphers."""

from __future__ import annotations

import hmac
import multiprocessing
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes import errors
from hermes.store.sealing.sealed_files import MARK, SealedFiles, key_id
from hermes.store.sealing.sealed_home import seal_files

KEY = bytes(range(32))
FILE = (
    b'\x89hermes-sealed 1\n{"name": "memories/USER.md", "key": "6f7c317b36fc84bf", "form": "file",'
    b' "nonce": "000102030405060708090a0b"}\n'
    b"\x1co\xd5\xecu\x98\xa7\x146{\xb0\xe4F!:/\xd0\xfaQ\xefs\x15*\xf1`\xe5\x0f"
)
LOG = (
    b'\x89hermes-sealed 1\n{"name": "chat_history", "key": "6f7c317b36fc84bf", "form": "log", "nonce": ""}\n'
    b"AAECAwQFBgcICQoLBGkCtbHil06Kewkq60Yi3eCL3Xs94gRFAHEQVv/R\n"
)


class OneKey:
    """A key source with one key, or with no key for a plain store."""

    def __init__(self, key: bytes | None = KEY) -> None:
        self._key = key

    def key_for_writing(self) -> bytes | None:
        return self._key

    def key_with_id(self, wanted: str, file: Path) -> bytes:
        if self._key is None or key_id(self._key) != wanted:
            raise errors.make_error(errors.StoreLocked, f"{file}: no such key")
        return self._key


@pytest.fixture
def sealed(tmp_path: Path) -> SealedFiles:
    root = tmp_path / "root"
    (root / "memories").mkdir(parents=True)
    return SealedFiles(root, OneKey())


def test_files_of_the_first_version_can_be_read_for_ever(sealed: SealedFiles) -> None:
    file, log = sealed.root / "memories" / "USER.md", sealed.root / "chat_history"
    file.write_bytes(FILE)
    log.write_bytes(LOG)
    assert sealed.read(file) == b"Likes tea.\n"
    assert sealed.size(file) == len(b"Likes tea.\n")
    assert sealed.read(log) == b"\n# now\n+hello\n"
    sealed.append(log, b"more")
    assert sealed.read(log) == b"\n# now\n+hello\nmore"


def test_the_format_is_what_the_documentation_says() -> None:
    """Files use HKDF-SHA256 and ChaCha20-Poly1305. HKDF is compared with an independent implementation."""
    pseudo_random = hmac.digest(bytes(32), KEY, sha256)
    derived = hmac.digest(pseudo_random, b"hermes-sessions sealed files 1: file\x01", sha256)
    head, _, body = FILE.partition(b'"}\n')
    assert ChaCha20Poly1305(derived).decrypt(bytes(range(12)), body, head + b'"}\n') == b"Likes tea.\n"


@given(st.binary(max_size=3000), st.integers(0, 4000))
def test_a_sealed_text_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, most: int
) -> None:
    root = tmp_path_factory.mktemp("root")
    for files in (SealedFiles(root, OneKey()), SealedFiles(root, OneKey(None))):
        file = root / "file"
        assume(not content.startswith(MARK))
        files.write(file, content)
        assert files.read(file) == content
        assert files.read(file, most) == content[:most]
        assert files.size(file) == len(content)


def test_the_same_text_is_never_sealed_to_the_same_bytes(sealed: SealedFiles) -> None:
    file, found = sealed.root / "file", set()
    for _ in range(50):
        sealed.write(file, b"the same")
        found.add(file.read_bytes())
    assert len(found) == 50


@pytest.mark.parametrize("cut", [len(MARK), len(MARK) + 10, len(FILE) - 40, len(FILE) - 1])
def test_a_file_that_was_cut_short_is_damaged(sealed: SealedFiles, cut: int) -> None:
    file = sealed.root / "memories" / "USER.md"
    file.write_bytes(FILE[:cut])
    with pytest.raises(errors.SealBroken):
        sealed.read(file)
    with pytest.raises(errors.SealBroken):
        sealed.read_opened(file)


@given(st.binary(max_size=200))
def test_no_garbage_is_read_as_text(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    root = tmp_path_factory.mktemp("root")
    file = root / "file"
    file.write_bytes(MARK + garbage)
    with pytest.raises((errors.SealBroken, errors.StoreLocked)):
        SealedFiles(root, OneKey()).read(file)


def test_a_file_outside_of_the_home_is_never_sealed(sealed: SealedFiles, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.md"
    sealed.write(file, b"plain")
    assert file.read_bytes() == b"plain"


def append_some(root: Path, number: int) -> None:
    files = SealedFiles(root, OneKey())
    for at in range(40):
        files.append(root / "chat_history", f"{number}-{at}\n".encode())


def test_processes_add_to_one_history_at_once(sealed: SealedFiles) -> None:
    """The history is plain at first. The first process that appends an entry seals it."""
    (sealed.root / "chat_history").write_bytes(b"before\n")
    workers = [
        multiprocessing.get_context("spawn").Process(target=append_some, args=(sealed.root, number))
        for number in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lines = sealed.read_opened(sealed.root / "chat_history").decode().splitlines()
    assert lines[0] == "before"
    for number in range(3):
        assert [line for line in lines if line.startswith(f"{number}-")] == [
            f"{number}-{at}" for at in range(40)
        ]


def test_every_file_is_sealed_however_many_there_are(sealed: SealedFiles) -> None:
    skill = sealed.root / "skills" / "many"
    skill.mkdir(parents=True)
    for number in range(300):
        (skill / f"{number}.md").write_text("words")
    (skill / ".git").mkdir()
    (skill / ".git" / "HEAD").write_text("ref: refs/heads/main")
    done = seal_files(sealed)
    assert (len(done.files), done.left) == (300, ())
    assert (skill / ".git" / "HEAD").read_text() == "ref: refs/heads/main"
