"""The exporter of every surface. It writes the conversations of a plan in one format to files or a stream, or
returns them as chunks of bytes.

At most one session is in memory at a time. Files are private (0600) and written atomically: after an error,
an interrupt or a cancellation, every file is in its previous state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from hermes import clock, home
from hermes.errors import ExportCancelled, OutputRefused
from hermes.export.formats import FORMATS, Format
from hermes.export.output_file import OutputFiles, Replace, check_target, refuse_store_files
from hermes.export.plan import Conversation, Plan, Session, keep_prompts, make_file_stem


class Options(NamedTuple):
    format: Format = FORMATS["jsonl"]
    redact: bool = False
    """Mask keys, passwords and other secrets."""
    prompts_only: bool = False
    """Export only the messages of people."""
    remote_images: bool = False
    """Markdown only: keep pictures that are loaded from the web."""
    left_out: frozenset[str] = frozenset()
    """Fields of a session to leave out of this export."""


class Destination(NamedTuple):
    path: Path
    """A file or a folder. An export to a folder writes one file per conversation, or one file for all,
    depending on the format."""
    store: Path
    """The store that contains the conversations. Its files are never replaced."""
    replace: Replace = Replace.EXPORTS
    makes_folder: bool = False
    """Whether `path` is a folder that is created if it is missing."""


class Progress(NamedTuple):
    done: int
    total: int
    """The number of sessions plus the number of messages, as counted when the export was planned."""


class Result(NamedTuple):
    sessions: int
    messages: int
    bytes: int
    missing: tuple[str, ...] = ()
    """Sessions that were deleted after the export was planned. The export does not contain them."""
    files: tuple[Path, ...] = ()
    backups: tuple[Path, ...] = ()
    """The paths under which replaced earlier exports are kept."""
    redacted: Mapping[str, int] = {}
    """The number of masked secrets in messages, by the name of the kind of secret."""


class Target(NamedTuple):
    path: Path
    conversations: list[Conversation]


class Export:
    """An export. Call one of its methods once: `write_files`, `write_stream`, `iterate_chunks` or `measure`.
    `measure` writes nothing."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        *,
        report: Callable[[Progress], object] | None = None,
        is_cancelled: Callable[[], bool] = bool,
    ) -> None:
        self._read, self._options = plan.read, options
        self._conversations = _apply_options(plan.conversations, options)
        self._report, self._is_cancelled = report, is_cancelled
        self._total = plan.total
        self._done = self._pending = self._sessions = self._messages = self._bytes = 0
        self._missing: list[str] = []
        self._redacted: Counter[str] = Counter()

    def iterate_chunks(self) -> Iterator[bytes]:
        return self._render(self._conversations)

    def write_stream(self, stream: BinaryIO) -> Result:
        stream.writelines(self._render(self._conversations))
        return self._make_result()

    def measure(self, destination: Destination | None = None) -> Result:
        """Read and format the whole export without writing it, and return what would be written. If a
        destination is given, check it as `write_files` does."""
        targets = [] if destination is None else self._plan_targets(destination)
        files = [self._conversations] if destination is None else [target.conversations for target in targets]
        for conversations in files:
            for _ in self._render(conversations):
                pass
        return self._make_result()._replace(files=tuple(target.path for target in targets))

    def write_files(self, destination: Destination) -> Result:
        targets = self._plan_targets(destination)
        if destination.makes_folder:
            home.make_private_folder(destination.path)
        with OutputFiles(destination.replace) as files:
            for path, conversations in targets:
                with files.open(path) as stream:
                    stream.writelines(self._render(conversations))
        paths = tuple(target.path for target in targets)
        return self._make_result()._replace(files=paths, backups=tuple(files.backups))

    # Files

    def _plan_targets(self, destination: Destination) -> list[Target]:
        """Return the files to write to the destination, each with its conversations. Raise an error if one of
        the files must not be written."""
        targets = self._name_files(destination)
        paths = [target.path for target in targets]
        if destination.replace is not Replace.NOTHING:
            refuse_store_files(destination.store, *paths)
        for path in paths:
            if not path.parent.is_dir() and not destination.makes_folder:
                raise OutputRefused(f"there is no folder {path.parent}")
            check_target(path, destination.replace)
        if destination.replace is Replace.NOTHING:  # report an existing name first
            refuse_store_files(destination.store, *paths)
        return targets

    def _name_files(self, destination: Destination) -> list[Target]:
        path, chosen, export_format = destination.path, self._conversations, self._options.format
        if not (destination.makes_folder or path.is_dir()):
            return [Target(path, chosen)]
        if not export_format.is_split:
            stem = (
                make_file_stem(chosen[0], False) if len(chosen) == 1 else f"sessions_{clock.format_stamp()}"
            )
            return [Target(path / f"{stem}{export_format.ending}", chosen)]
        stems = [make_file_stem(conversation, export_format.is_titled) for conversation in chosen]
        names = _make_names_unique([f"{stem}{export_format.ending}" for stem in stems])
        return [Target(path / name, [found]) for name, found in zip(names, chosen, strict=True)]

    # Content

    def _render(self, conversations: Sequence[Conversation]) -> Iterator[bytes]:
        options = {"remote_images": True} if self._options.remote_images else {}
        for piece in self._options.format.write(conversations, self._load, **options):
            self._check_cancelled()
            chunk = piece.encode(errors="replace")
            self._bytes += len(chunk)
            yield chunk
            self._advance(1)  # most formats yield one chunk per message
        self._advance(self._pending)
        self._check_cancelled()

    def _load(self, session_id: str) -> Session | None:
        self._check_cancelled()
        session = self._read(session_id)
        if session is None:
            self._missing.append(session_id)
            return None
        self._advance(self._pending)
        self._pending = len(session["messages"]) + 1
        if self._options.redact:
            from hermes.secrets import redact_preview, redact_value

            messages = redact_value(session["messages"], self._redacted)
            preview = redact_preview(session.get("preview") or "")
            session = {**redact_value({**session, "messages": [], "preview": preview}), "messages": messages}
        exported = keep_prompts(session) if self._options.prompts_only else session
        if exported is None:
            return None
        self._sessions += 1
        self._messages += len(exported["messages"])
        left_out = self._options.left_out
        return {name: value for name, value in exported.items() if name not in left_out}

    def _advance(self, count: int) -> None:
        """Add `count` steps to the progress of the export, at most as many as the current session still has.
        Report the progress."""
        count = min(count, self._pending)
        self._pending -= count
        self._done += count
        if count and self._report is not None:
            self._report(Progress(self._done, self._total))

    def _check_cancelled(self) -> None:
        if self._is_cancelled():
            raise ExportCancelled("the export was cancelled; nothing was written")

    def _make_result(self) -> Result:
        return Result(
            self._sessions, self._messages, self._bytes, tuple(self._missing), redacted=dict(self._redacted)
        )


def _apply_options(conversations: list[Conversation], options: Options) -> list[Conversation]:
    """Return the conversations with the options of the export applied to the titles, the previews and the
    message counts of their sessions. With `redact`, secrets in titles and previews are redacted. With
    `prompts_only`, the message counts are set to 0."""

    def apply(conversation: Conversation) -> Conversation:
        segments = conversation.segments
        if options.redact:
            from hermes.secrets import redact, redact_preview

            segments = [
                segment._replace(
                    title=redact(segment.title) if segment.title else None,
                    preview=redact_preview(segment.preview),
                )
                for segment in segments
            ]
        if options.prompts_only:
            segments = [segment._replace(message_count=0) for segment in segments]
        return conversation._replace(segments=segments)

    return [apply(conversation) for conversation in conversations]


def _make_names_unique(names: Sequence[str]) -> list[str]:
    """Return a unique file name for each of the names, because different conversation ids can result in the
    same name. The results differ even if case is ignored, as some file systems do."""
    taken: set[str] = set()
    unique: list[str] = []
    for name in names:
        path, number = Path(name), 1
        while name.casefold() in taken:
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        taken.add(name.casefold())
        unique.append(name)
    return unique
