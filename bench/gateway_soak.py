"""A soak test of the gateway: steady load, with random kills and random losses of the connection.

    python bench/gateway_soak.py [--seconds 600] [--seed 1] [--chats 50]

A kill ends the gateway. A loss of the connection separates it from the platform. At the end, every message
must be stored and answered once. After each kill or lost connection, the delivery of at most
`deliveries_at_once` messages may be unknown. The program exits with 1 if this does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gateway_bench import PROBLEMS, ROOT, Platform, check_store, settled

DELIVERIES_AT_ONCE = 4


async def soak(arguments: argparse.Namespace, work: Path) -> int:
    chance = random.Random(arguments.seed)
    platform = Platform(work, ROOT, seconds=0.05, deliveries_at_once=DELIVERIES_AT_ONCE, turns_at_once=8)
    platform.confirms = True
    await platform.open()
    await platform.start_gateway()
    messages: list[dict[str, Any]] = []
    kills = lost_connections = 0
    until, next_trouble = monotonic() + arguments.seconds, monotonic() + 5.0
    while monotonic() < until:
        number = len(messages)
        text = f"s-{number}"
        messages.append({"id": text, "chat": f"{chance.randrange(arguments.chats)}", "text": text, "at": 0.0})
        platform.deliver(messages[-1])
        await asyncio.sleep(chance.uniform(0.02, 0.1))
        if monotonic() > next_trouble:
            if chance.random() < 0.6:
                kills += 1
                await platform.kill()
                await platform.start_gateway()
            else:
                lost_connections += 1
                await platform.go_away(chance.uniform(0.2, 3.0))
            platform.deliver_unacknowledged(messages)
            next_trouble = monotonic() + chance.uniform(2.0, 15.0)
    await settled(platform, lambda: len(platform.acked) >= len(messages), 20.0)
    await settled(platform, lambda: all(platform.arrived[message["id"]] for message in messages), 10.0)
    await platform.end()
    figures = check_store(work, platform, messages)
    most = (kills + lost_connections) * DELIVERIES_AT_ONCE
    print(
        f"{len(messages):,} messages, {kills} kills, {lost_connections} lost connections (seed {arguments.seed})"
    )
    for name, value in figures.items():
        bound = f"  (at most {most})" if name == "delivery unknown" else ""
        print(f"  {name:<20} {value:>6.0f}{bound}")
    is_bad = any(figures[problem] for problem in PROBLEMS) or figures["delivery unknown"] > most
    return 1 if is_bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--chats", type=int, default=50)
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="hermes-soak-"))
    try:
        return asyncio.run(soak(arguments, work))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
