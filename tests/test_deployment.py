"""The files in `deploy/`: the image of the container, the compose example and the alerts for Prometheus."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

from hermes.gateway.ops.metrics import GatewayMetrics
from tests.gateway.conformance.stage import until
from tests.ports import reserve_port
from tests.test_release import list_packages, pack_installed

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
PORT = "8686"


class Step(NamedTuple):
    word: str
    rest: str


def read_steps() -> list[Step]:
    """Return the instructions of the Containerfile."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Step(*line.split(maxsplit=1)) for line in lines]


def find_step(word: str) -> str:
    """Return the last instruction of a kind."""
    return [step.rest for step in read_steps() if step.word == word][-1]


def test_the_container_does_not_run_as_root_and_keeps_its_home_on_a_volume() -> None:
    user, _, group = find_step("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert find_step("VOLUME") == "/data"
    assert "HERMES_HOME=/data" in find_step("ENV").split()
    assert f"-o {user} -g {group} /data" in find_step("RUN")
    assert "/healthz" in find_step("HEALTHCHECK")
    assert json.loads(find_step("CMD"))[:2] == ["gateway", "run"]


def test_everything_that_the_image_needs_is_sent_to_the_builder() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [step.rest.split() for step in read_steps() if step.word == "COPY" and "--from" not in step.rest]
    assert {name for words in copied for name in words[:-1]} == sent
    assert all((ROOT / name).exists() for name in sent)


def test_the_compose_example_fits_the_image() -> None:
    compose = YAML(typ="safe").load(DEPLOY / "compose.yaml")
    service = compose["services"]["gateway"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert [mount.split(":") for mount in service["volumes"]] == [["hermes-home", "/data"]]
    assert set(compose["volumes"]) == {"hermes-home"}
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
    assert (DEPLOY / f"{service['env_file']}.example").exists()


# ---------------------------------------------------------------- alerts


def read_rules() -> list[dict[str, Any]]:
    rules = YAML(typ="safe").load(DEPLOY / "prometheus-rules.yml")
    return [rule for group in rules["groups"] for rule in group["rules"]]


def test_the_alerts_use_metrics_that_exist_and_name_recipes_that_exist() -> None:
    known = set(re.findall(r"^# TYPE (\S+)", GatewayMetrics().render(), re.MULTILINE))
    page = (ROOT / "docs" / "operating.md").read_text()
    headings = {re.sub(r"\W+", "-", line.lower()) for line in re.findall(r"^### (.+)$", page, re.MULTILINE)}
    for rule in read_rules():
        used = {name.removesuffix("_bucket") for name in re.findall(r"\bhermes_\w+", rule["expr"])}
        assert used <= known, rule["alert"]
        place, _, heading = rule["annotations"]["runbook"].partition("#")
        assert (place, heading in headings) == ("docs/operating.md", True), rule["alert"]


def test_prometheus_accepts_the_alerts() -> None:
    checker = shutil.which("promtool")
    if checker is None:
        for rule in read_rules():  # without promtool, check only that parentheses are balanced
            assert rule["expr"].count("(") == rule["expr"].count(")")
        return
    checked = subprocess.run([checker, "check", "rules", str(DEPLOY / "prometheus-rules.yml")])
    assert checked.returncode == 0


# ---------------------------------------------------------------- building


def find_builder() -> str | None:
    """Return a program that can build images on this machine."""
    for name in ("podman", "docker"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True).returncode == 0:
            return name
    return None


@pytest.mark.full
def test_the_image_is_built_and_serves_health(tmp_path: Path) -> None:
    """Build the image and run it. Without a builder, execute the steps of the file in a clean directory."""
    builder = find_builder()
    if builder is not None:
        build = [builder, "build", "--tag", "hermes-gateway-test", "--file", str(DEPLOY / "Containerfile")]
        subprocess.run([*build, str(ROOT)], check=True)
        shown = subprocess.run(
            [builder, "run", "--rm", "--entrypoint", "id", "hermes-gateway-test", "-u"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert shown.stdout.strip() == find_step("USER").partition(":")[0]
        version = [builder, "run", "--rm", "hermes-gateway-test", "--version"]
        subprocess.run(version, check=True)
        return
    machine = ExecutedImage(tmp_path / "machine", tmp_path / "wheels")
    machine.build()
    home = machine.locate("/data")
    assert home.stat().st_mode & 0o777 == 0o700
    port = reserve_port()
    (home / "config.yaml").write_text(f"gateway: {{health_port: {port}}}\n")
    command = [*json.loads(find_step("ENTRYPOINT")), *json.loads(find_step("CMD"))]
    (check,) = re.findall(r"CMD (\[.*\])", find_step("HEALTHCHECK"))
    check_words = [word.replace(PORT, str(port)) for word in json.loads(check)]
    assert machine.run(*check_words).returncode != 0
    secrets = {"WEBHOOK_SECRET": "a secret of the webhook", "WEBHOOK_PORT": str(reserve_port())}
    with machine.start(*command, HERMES_MODEL="offline", **secrets) as gateway:
        try:
            until(lambda: machine.run(*check_words).returncode == 0, machine.read_log)
        finally:
            gateway.send_signal(getattr(signal, find_step("STOPSIGNAL")))
        assert gateway.wait(60) == 0


class ExecutedImage:
    """Executes the instructions of the Containerfile below a folder, without a builder. Paths of the image are
    replaced by paths below the folder. Packages come from this environment, so no network is needed."""

    def __init__(self, root: Path, wheels: Path) -> None:
        self._root = root
        self._here = root
        self._log = wheels.with_name("log")
        self._arguments: dict[str, str] = {}
        self._variables: dict[str, str] = {}
        wheels.mkdir()
        for name in {*list_packages("gateway", "telegram", "matrix"), "setuptools"}:
            pack_installed(name, wheels)
        self._pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull}

    def locate(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _translate(self, text: str) -> str:
        return re.sub(r"(?<![\w.}])/(opt|src|data)\b", lambda found: str(self.locate(found[0])), text)

    def build(self) -> None:
        for step in read_steps():
            match step.word:
                case "ARG":
                    self._arguments.update([step.rest.split("=", 1)])  # type: ignore[list-item]
                case "ENV":
                    self._variables.update(word.split("=", 1) for word in step.rest.split())  # type: ignore[misc]
                case "WORKDIR":
                    self._here = self.locate(step.rest)
                    self._here.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(shlex.split(step.rest))
                case "RUN":
                    self._execute(step.rest)

    def _copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):
            assert self.locate(words[1]).exists()  # both stages use the same folder
            return
        *names, place = words
        for name in names:
            source, target = ROOT / name, self.locate(place)
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)

    def _execute(self, command: str) -> None:
        command = re.sub(r"-[og] \d+ ", "", command)  # the gateway then runs as the user of the test
        environment = {**self._environment(), **self._pip, **self._arguments}
        done = subprocess.run(
            ["sh", "-ec", self._translate(command)], cwd=self._here, env=environment, capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ours = {name: self._translate(value) for name, value in self._variables.items()}
        return {**ours, "PATH": path}

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        translated = [self._translate(word) for word in words]
        return subprocess.run(translated, env=self._environment(), capture_output=True)

    def start(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        translated = [self._translate(word) for word in words]
        with self._log.open("wb") as log:
            return subprocess.Popen(translated, env={**self._environment(), **environment}, stderr=log)

    def read_log(self) -> str:
        return self._log.read_text()
