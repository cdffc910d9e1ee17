"""Changed settings and keys take effect in a running gateway process. No turn is dropped."""

from __future__ import annotations

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from hermes import audit_log
from hermes.gateway.platforms.webhook.signed_request import OURS, sign
from tests.gateway.conformance.echo_model import echo, held
from tests.gateway.conformance.on_telegram import OnTelegram
from tests.gateway.conformance.stage import until
from tests.gateway.operated_gateway import OperatedGateway
from tests.ports import reserve_port


def test_settings_take_effect_while_a_turn_runs(operated: OperatedGateway) -> None:
    ann, bob = operated.telegram.person("Ann"), operated.telegram.person("Bob", known=False)
    operated.start()
    assert "Nothing changed." in operated.run("gateway", "reload").stdout
    operated.say(ann, "hold kiwi")
    until(lambda: operated.model.asked("kiwi"))
    operated.say(bob, "may I?")
    operated.config["platforms"]["telegram"]["allowed_users"].append(bob.id)
    operated.config["gateway"]["messages_per_minute"] = 30
    operated.config["model"]["default"] = "other-model"
    operated.variables["OPENAI_API_KEY"] = "sk-changed"
    operated.save()
    done = operated.run("gateway", "reload")
    assert done.returncode == 0, done.stderr
    assert "gateway.messages_per_minute: 20 → 30" in done.stdout
    assert "model.default: large-model → other-model" in done.stdout
    assert "OPENAI_API_KEY" in done.stdout
    assert "sk-changed" not in done.stdout
    assert "platforms.telegram.allowed_users" in done.stdout
    operated.model.let_go("kiwi")
    until(lambda: operated.heard(ann) == [held("kiwi")], lambda: operated.log)
    assert operated.asks(bob, "and now?") == echo("and now?")
    assert operated.asks(ann, "next") == echo("next")
    assert operated.model.asked("next")[-1].body["model"] == "other-model"
    assert operated.log.count("telegram: up") == 1
    changed = [entry for entry in audit_log.read() if entry["action"] == "gateway.reload"]
    assert "model.default" in changed[-1]["details"]["changed"]


def test_a_broken_configuration_is_refused_and_the_old_one_stays(operated: OperatedGateway) -> None:
    ann = operated.telegram.person("Ann")
    operated.start()
    operated.config["gateway"]["messages_per_minute"] = "many"
    operated.config["platforms"]["telegram"]["allowed_users"] = []
    operated.save()
    done = operated.run("gateway", "reload")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "gateway.messages_per_minute" in line
    assert line.endswith("the old settings stay in force")
    assert operated.asks(ann, "hello") == echo("hello")
    operated.config["gateway"]["messages_per_minute"] = 20
    operated.config["platforms"]["webhook"] = {"enabled": True}  # the secret of the platform is missing
    operated.config["platforms"]["telegram"]["enabled"] = True
    del operated.variables["TELEGRAM_BOT_TOKEN"]
    operated.save()
    done = operated.run("gateway", "reload")
    assert done.returncode == 1
    assert "TELEGRAM_BOT_TOKEN" in done.stderr
    operated.signal(signal.SIGHUP)
    until(lambda: operated.log.count("reload refused") == 3, lambda: operated.log)
    operated.variables["TELEGRAM_BOT_TOKEN"] = "4242:" + "wrong"
    del operated.config["platforms"]["webhook"]
    operated.config["platforms"]["telegram"]["allowed_users"] = [ann.id]
    operated.save()
    done = operated.run("gateway", "reload")  # only Telegram can report that the token is wrong
    assert done.returncode == 1
    assert "telegram refused its new settings" in done.stderr
    assert operated.asks(ann, "again") == echo("again")


def test_sighup_connects_and_disconnects_platforms(operated: OperatedGateway) -> None:
    ann, port = operated.telegram.person("Ann"), reserve_port()
    operated.config["platforms"]["webhook"] = {"enabled": False, "port": port}
    operated.variables["WEBHOOK_SECRET"] = "a secret of the webhook"
    operated.save()
    operated.start()
    operated.config["platforms"]["webhook"]["enabled"] = True
    operated.save()
    operated.signal(signal.SIGHUP)
    until(lambda: "webhook: up" in operated.log, lambda: operated.log)
    assert _post(port) == 401
    operated.config["platforms"]["webhook"]["enabled"] = False
    operated.save()
    done = operated.run("gateway", "reload", "--json")
    assert json.loads(done.stdout)["platforms"] == {"telegram": "unchanged", "webhook": "disconnected"}
    assert _post(port) is None
    platforms = json.loads(operated.run("gateway", "status", "--json").stdout)["platforms"]
    assert {platform["name"]: platform["state"] for platform in platforms} == {
        "telegram": "up",
        "webhook": None,
    }
    assert operated.asks(ann, "hello") == echo("hello")


def test_a_changed_platform_reconnects_and_the_running_turn_is_answered(operated: OperatedGateway) -> None:
    ann = operated.telegram.person("Ann")
    operated.start()
    operated.say(ann, "hold kiwi")
    until(lambda: operated.model.asked("kiwi"))
    with closing(OnTelegram()) as other:
        _, eve = other.person("Ann"), other.person("Eve")
        operated.config["platforms"]["telegram"]["base_url"] = other.environment["TELEGRAM_BASE_URL"]
        operated.save()
        done = operated.run("gateway", "reload")
        assert "telegram: reconnected" in done.stdout, done.stderr
        until(lambda: operated.log.count("telegram: up") == 2, lambda: operated.log)
        other.say(eve, other.dm(eve), "hello")
        until(lambda: other.heard(other.dm(eve)) == [echo("hello")], lambda: operated.log)
        operated.model.let_go("kiwi")
        # the answer is delivered by the current connection of the platform
        until(lambda: other.heard(other.dm(ann)) == [held("kiwi")], lambda: operated.log)


def test_a_waiting_webhook_request_is_answered_before_its_platform_reconnects(
    operated: OperatedGateway,
) -> None:
    port, secret = reserve_port(), "a secret of the webhook"
    operated.config["platforms"]["webhook"] = {"port": port}
    operated.variables["WEBHOOK_SECRET"] = secret
    operated.save()
    operated.start()
    until(lambda: "webhook: up" in operated.log, lambda: operated.log)
    body = json.dumps({"text": "hold kiwi", "user": "ann"}).encode()
    headers = {OURS: sign(secret.encode(), body, time.time())}
    with ThreadPoolExecutor() as pool:
        asked = Request(f"http://127.0.0.1:{port}/webhook", body, headers)
        waiting = pool.submit(lambda: json.loads(urlopen(asked, timeout=60).read()))
        until(lambda: operated.model.asked("kiwi"), lambda: operated.log)
        operated.config["platforms"]["webhook"]["port"] = new_port = reserve_port()
        operated.save()
        reloading = pool.submit(operated.run, "gateway", "reload")
        until(lambda: _post(port, headers) == 503, lambda: operated.log)  # the server accepts no new requests
        operated.model.let_go("kiwi")
        assert waiting.result()["reply"] == held("kiwi")
        assert "webhook: reconnected" in reloading.result().stdout
    assert (_post(port), _post(new_port)) == (None, 401)


def test_without_a_gateway_reload_says_so(operated: OperatedGateway) -> None:
    done = operated.run("gateway", "reload")
    assert done.returncode == 1
    assert done.stderr == "hermes: the gateway is not running; start it with `hermes gateway run`\n"


def _post(port: int, headers: dict[str, str] | None = None) -> int | None:
    asked = Request(f"http://127.0.0.1:{port}/webhook", b"{}", headers or {})
    try:
        return int(urlopen(asked, timeout=10).status)
    except HTTPError as problem:
        problem.close()
        return problem.code
    except OSError:
        return None
