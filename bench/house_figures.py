"""Prints figures about the code base: modules, importers, names, folders, and the call path of a message.

    .venv/bin/python bench/house_figures.py [--source OTHER_CHECKOUT/src]

The counts depend only on source text and imports, so two commits can be compared. If a call path cannot be
measured in a commit, the error is printed in its place.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS_OF_THE_DIALECT = {"told", "shown", "said"}
# Each program below receives the source folder and the path of a new store. It prints function names as JSON.

# Finds the deepest stack of frames of this package at any call of apsw during one append.
STACK = """
import json, sys
import apsw
from pathlib import Path
from hermes_state import SessionDB

source = sys.argv[1]
depths = []
with SessionDB(Path(sys.argv[2])) as db:
    db.create_session("s", "cli")
    db.append_message("s", "user", "warm up")

    def note(frame, event, function):
        if event == "c_call" and getattr(function, "__module__", None) in (None, "apsw") and "apsw" in repr(function):
            names = []
            while frame is not None:
                if frame.f_code.co_filename.startswith(source):
                    names.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}")
                frame = frame.f_back
            depths.append(names)

    sys.setprofile(note)
    db.append_message("s", "user", "measured")
    sys.setprofile(None)
print(json.dumps(max(depths, key=len)))
"""

# Lists the async generators of this package that forward a text delta of the offline model, at the moment
# when a surface receives the delta.
GENERATORS = """
import asyncio, gc, json, sys
from pathlib import Path
from types import AsyncGeneratorType
from hermes_state import SessionDB
from hermes.agent.components import ModelChoice
from hermes.agent.events import TextDelta
from hermes.agent.factory import make_standard_components
from hermes.conversation.local_conversation import open_local_conversation

async def main(db):
    conversation = open_local_conversation(db, make_standard_components(), wish=ModelChoice("offline"))
    passed = set()
    async for event in conversation.say("Tell me something."):
        if isinstance(event, TextDelta):
            passed |= {
                f"{generator.ag_frame.f_globals['__name__']}.{generator.ag_code.co_qualname}"
                for generator in gc.get_objects()
                if isinstance(generator, AsyncGeneratorType)
                and generator.ag_code.co_filename.startswith(sys.argv[1])
                and generator.ag_frame is not None
                and generator.ag_frame.f_lasti > 0
            }
    await conversation.close()
    print(json.dumps(sorted(passed)))

with SessionDB(Path(sys.argv[2])) as db:
    asyncio.run(main(db))
"""

# Sends a message to the real Telegram adapter, which is connected to a local server. The program collects the
# functions of this package that are on the stack at each of POINTS and when the answer is sent. If a point is
# not reached, the function was renamed, and its name must be updated here.
SPINE = """
import asyncio, json, sys
from pathlib import Path
from hermes_state import SessionDB
from hermes.db.store_queue import StoreQueue
from hermes.gateway.app import Gateway
from hermes.gateway.platforms.telegram.adapter import Telegram
from hermes.gateway.settings import PlatformSettings
from hermes.conversation.agents import StandardAgentProvider
from tests.gateway.telegram_server import TelegramServer
from tests.gateway.local_gateway import Brain, WithBrain, settings_of

POINTS = {
    "hermes.store.chats.inbox.Inbox.accept",
    "hermes.agent.transcript.StoredRecord._append",
    "hermes.gateway.outbound.delivery.Delivery.post.<locals>.put",
}
passed = set()
spine = {}

def note():
    frame, names = sys._getframe(2), []
    while frame is not None:
        code = frame.f_code
        module = frame.f_globals["__name__"]
        # `call_store` is not counted, as `asyncio.to_thread` is not: it only changes the thread.
        if code.co_filename.startswith(sys.argv[1]) and module != "hermes.db.store_queue":
            names.append(f"{module}.{code.co_qualname}")
        frame = frame.f_back
    spine.update(dict.fromkeys(reversed(names)))

submit = StoreQueue.submit

def submit_and_note(queue, work, **options):
    function = getattr(work, "func", work)
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    if name in POINTS:
        passed.add(name)
        note()
    return submit(queue, work, **options)

async def main(db):
    server = TelegramServer()
    await server.start()
    options = {"bot_token": server.token, "base_url": server.base_url}
    adapter = Telegram(PlatformSettings("telegram", more=options), Path(sys.argv[2]).parent)
    gateway = Gateway(db, settings_of(), {"telegram": adapter}, StandardAgentProvider(WithBrain(Brain())))
    await gateway.start()
    person = server.person("Ann")
    server.say(person, "warm up")
    await server.until_sent(1)
    await asyncio.sleep(1)
    send = adapter._bot.send_message

    async def send_message(*arguments, **options):
        note()
        return await send(*arguments, **options)

    StoreQueue.submit = submit_and_note
    with adapter._bot._unfrozen():
        adapter._bot.send_message = send_message
    server.say(person, "hello")
    await server.until_sent(2)
    StoreQueue.submit = submit
    await gateway.close()
    await server.stop()
    assert passed == POINTS, f"not passed: {sorted(POINTS - passed)}"
    print(json.dumps(list(spine)))

with SessionDB(Path(sys.argv[2])) as db:
    asyncio.run(main(db))
"""


def modules(source: Path) -> dict[str, Path]:
    found = {}
    for path in sorted(source.rglob("*.py")):
        name = ".".join(path.relative_to(source).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports(name: str, tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known:
                    yield inner
                elif node.module in known and node.module != name:
                    yield node.module


def list_dialect(trees: dict[str, ast.Module]) -> tuple[list[str], int]:
    """Return the functions, attributes and variables whose names contain a word that the naming rules forbid
    (such as `told`), and the number of variables named `one`.

    Constants and variables inside comprehensions are left out.
    """
    found: list[str] = []
    ones = 0
    for module, tree in trees.items():
        inside = {
            id(name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda)
            for name in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [node.name, *(argument.arg for argument in [*node.args.args, *node.args.kwonlyargs])]
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names = [node.attr]
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in inside:
                names = [node.id]
            else:
                continue
            ones += sum(name.strip("_") == "one" for name in names)
            found += [f"{module}.{name}" for name in names if WORDS_OF_THE_DIALECT & set(name.split("_"))]
    return found, ones


def measure(program: str, source: Path) -> list[str]:
    """Run `program` on the code in the folder `source`. Return the names that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", program, str(source), str(Path(folder) / "state.db")],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                # Use the tests of the measured checkout, if it has any.
                "PYTHONPATH": os.pathsep.join(map(str, (source, source.parent, ROOT))),
                "HERMES_HOME": folder,
            },
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    names: list[str] = json.loads(done.stdout)
    return names


def describe_measure(program: str, source: Path) -> str:
    try:
        names = measure(program, source)
    except RuntimeError as problem:  # names can differ between commits
        return str(problem).strip().splitlines()[-1]
    return f"{len(names)} {' < '.join(name.removeprefix('hermes.') for name in names)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    source = parser.parse_args().source.resolve()
    known = modules(source)
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in known.items()}
    files = {name: path for name, path in known.items() if path.name != "__init__.py"}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, tree in trees.items():
        for target in imports(name, tree, known):
            if target != name:
                importers[target].add(name)
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in known.items()}
    names = Counter(path.stem for path in files.values())
    repeated = {name: count for name, count in names.items() if count > 1}
    folders = Counter(str(path.parent.relative_to(source)) for path in files.values())
    dialect, ones = list_dialect(trees)
    participles = sorted(name for name in files if re.search(r"(ing|ed)$", name.rpartition(".")[2]))

    print(f"modules                       {len(files)}")
    print(f"lines                         {sum(lines.values())}")
    print(f"modules over 500 lines        {sum(count > 500 for count in lines.values())}")
    print(f"modules with one importer     {sum(len(importers[name]) == 1 for name in files)}")
    print(
        f"  of at most 60 lines         {sum(len(importers[name]) == 1 and lines[name] <= 60 for name in files)}"
    )
    print(f"repeated base names           {len(repeated)}: {', '.join(sorted(repeated))}")
    print(
        f"largest folders               {', '.join(f'{name} {count}' for name, count in folders.most_common(5))}"
    )
    print(f"modules named by a participle {len(participles)}: {', '.join(participles)}")
    print(f"names with told/shown/said    {len(dialect)}: {', '.join(dialect)}")
    print(f"variables called `one`        {ones}")
    print(f"own frames of an append       {describe_measure(STACK, source)}")
    print(f"generators on a delta's way   {describe_measure(GENERATORS, source)}")
    print(f"own frames of a Telegram turn {describe_measure(SPINE, source)}")


if __name__ == "__main__":
    main()
