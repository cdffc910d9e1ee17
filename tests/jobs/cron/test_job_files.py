"""Job files: private, checked, and independent of one another."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import msgspec
import pytest

from hermes.jobs.cron.job import BadJob, Job
from hermes.jobs.cron.job_files import JobFiles, UnknownJob
from tests.jobs.cron.conftest import AddJob


def test_a_job_is_a_private_file_that_a_person_can_read(add_job: AddJob, files: JobFiles) -> None:
    job = add_job("say hello", "weekdays at 9", name="Morning report", timezone="Europe/Berlin")
    path = files.folder / "morning-report.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    written = json.loads(path.read_text())
    assert (written["schedule"], written["timezone"], written["prompt"]) == (
        "0 9 * * 1-5",
        "Europe/Berlin",
        "say hello",
    )
    assert files.read_all().jobs == {"morning-report": job}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "Expected `object`"),
        (b'{"id": "broken"}', "missing required field"),
        ({"schedule": "61 * * * *"}, "bad minute"),
        ({"timezone": "Mars/Olympus"}, "no time zone"),
        ({"id": "other"}, "is not its file name"),
        ({"retries": 1000}, "retries"),
        ({"timeout": "soon"}, "timeout"),
        ({"missed": "sometimes"}, "missed runs"),
        ({"unknown_key": 1}, "unknown field"),
        ({"version": 99}, "version 99"),
        ({"schedule": "every 2d", "since": 1e12}, "out of range"),
        ({"schedule": "0001-01-01T00:00:00", "timezone": "Europe/Berlin"}, ""),
        (b" " * 2_000_000, "too large"),
    ],
)
def test_a_bad_file_is_reported_and_the_others_are_read(
    content: bytes | dict[str, object], problem: str, add_job: AddJob, files: JobFiles
) -> None:
    good = add_job("say hello", name="good")
    fields = {**json.loads((files.folder / "good.json").read_text()), "id": "broken", "name": "broken"}
    bad = content if isinstance(content, bytes) else json.dumps({**fields, **content}).encode()
    (files.folder / "broken.json").write_bytes(bad)
    jobs, broken = files.read_all()
    assert jobs == {"good": good}
    assert [file.path.name for file in broken] == ["broken.json"]
    assert problem in broken[0].problem
    assert "\n" not in broken[0].problem


def test_an_unreadable_folder_or_link_in_place_of_a_file_is_a_bad_file(
    add_job: AddJob, files: JobFiles
) -> None:
    add_job("say hello", name="good")
    (files.folder / "folder.json").mkdir()
    (files.folder / "link.json").symlink_to(files.folder / "nowhere")
    jobs, broken = files.read_all()
    assert list(jobs) == ["good"]
    assert sorted(file.path.name for file in broken) == ["folder.json", "link.json"]


def test_names_are_unique_and_ids_follow_from_them(add_job: AddJob) -> None:
    assert add_job("a", name="Nightly, backup!").id == "nightly-backup"
    assert add_job("b", name="Nightly backup?").id == "nightly-backup-2"
    assert add_job("c", name="夜").id == "job"
    with pytest.raises(BadJob, match="choose another name"):
        add_job("d", name="NIGHTLY, BACKUP!")


def test_a_job_is_found_by_id_name_or_the_beginning_of_its_id(add_job: AddJob, files: JobFiles) -> None:
    report = add_job("a", name="Morning report")
    add_job("b", name="Morning walk")
    assert files.find("morning-report") == files.find("MORNING REPORT") == files.find("morning-r") == report
    with pytest.raises(UnknownJob, match="could be any of morning-report, morning-walk"):
        files.find("morning")
    with pytest.raises(UnknownJob, match="there is no job 'evening'"):
        files.find("evening")


def test_a_removed_job_is_not_written_again_by_a_late_change(add_job: AddJob, files: JobFiles) -> None:
    job = add_job("a", name="gone")

    def change(current: Job) -> Job:
        return msgspec.structs.replace(current, enabled=False)

    assert files.remove(job.id)
    with pytest.raises(UnknownJob, match="removed"):
        files.change(job.id, change)
    assert files.read_all().jobs == {}
    assert not files.remove(job.id)


def test_a_changed_file_is_noticed_and_an_unchanged_one_is_not_read_again(
    add_job: AddJob, files: JobFiles
) -> None:
    add_job("a", name="one")
    first = files.read_all().jobs["one"]
    assert files.read_all().jobs["one"] is first
    files.change("one", lambda job: msgspec.structs.replace(job, prompt="b"))
    assert files.read_all().jobs["one"].prompt == "b"


def test_other_files_in_the_folder_are_left_alone(add_job: AddJob, files: JobFiles) -> None:
    add_job("a", name="one")
    for name in (".hidden.json", "notes.txt", "one.json~"):
        Path(files.folder / name).write_text("not a job")
    jobs, broken = files.read_all()
    assert (list(jobs), broken) == (["one"], [])
