"""Seatbelt: macOS's `sandbox-exec` with a profile made from the view. The last rule that fits wins."""

from __future__ import annotations

from pathlib import Path

from hermes.agent.sandbox.file_view import View
from hermes.agent.sandbox.programs import find_system_program

PROGRAM = "sandbox-exec"
FIXED = """
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.trustd.agent"))
(allow file-read-metadata)
(allow file-read* file-write* file-ioctl
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom")
  (literal "/dev/dtracehelper"))
""".strip()
NETWORK = "(allow network-outbound (remote ip)) (allow network-inbound (local ip)) (allow system-socket)"


def is_installed() -> bool:
    return find_system_program(PROGRAM) is not None


def make_arguments(view: View, *, network: bool, read_only: bool = False) -> list[str]:
    return [
        find_system_program(PROGRAM) or PROGRAM,
        "-p",
        make_profile(view, network=network, read_only=read_only),
    ]


def make_profile(view: View, *, network: bool, read_only: bool = False) -> str:
    lines = [FIXED]
    lines += [f"(allow file-read* {_format_subpath(path)})" for path in view.readable]
    writable = [view.temporary] if read_only else view.writable
    lines += [f"(allow file-write* {_format_subpath(path)})" for path in writable]
    lines += [f"(deny file-write* {_format_subpath(path)})" for path in view.protected]
    lines += [f"(deny file-read* file-write* {_format_subpath(path)})" for path in view.hidden]
    if network:
        lines.append(NETWORK)
    return "\n".join(lines)


def _format_subpath(path: Path) -> str:
    quoted = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'(subpath "{quoted}")'
