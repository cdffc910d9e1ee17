"""Partial files: a file gets its final name only when it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.atomic_files import write_new_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_file_appears_when_it_is_whole(folder: Path) -> None:
    path = folder / "a"
    with write_new_file(path, replace=False) as file:
        file.write(b"all of it")
        assert not path.exists()
    assert path.read_bytes() == b"all of it"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(folder) == ["a"]


def test_a_file_that_has_just_appeared_is_not_replaced(folder: Path) -> None:
    path = folder / "a"

    def write(replace: bool) -> None:
        with write_new_file(path, replace=replace) as file:
            file.write(b"ours")
            path.write_bytes(b"theirs")

    with pytest.raises(FileExistsError):
        write(replace=False)
    assert path.read_bytes() == b"theirs"
    write(replace=True)
    assert path.read_bytes() == b"ours"
    assert names(folder) == ["a"]


def test_an_error_leaves_nothing(folder: Path) -> None:
    def write() -> None:
        with write_new_file(folder / ("n" * 255), replace=True) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert names(folder) == []
