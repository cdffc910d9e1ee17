"""Opens the model that the settings select. If the settings select no model, the error says how to select
one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from hermes.agent.models import local
from hermes.agent.models.endpoints import OPENAI, OPENROUTER, find_address, find_key_variable, find_servers
from hermes.agent.models.fallback import Cooldowns, FallbackModel
from hermes.agent.models.model import Model, ModelError
from hermes.config import dotenv
from hermes.config.extras import format_install
from hermes.config.settings_schema import Settings
from hermes.logs import get_logger

log = get_logger(__name__)

__all__ = [
    "OFFLINE",
    "Endpoint",
    "Fallback",
    "choose_endpoint",
    "find_servers",
    "list_fallbacks",
    "open_auxiliary_model",
    "open_fallback",
    "open_main_model",
    "open_model",
]

OFFLINE = "offline"
"""The model that needs no network, no key and no weights."""
HOW = "run `hermes setup`, or set HERMES_MODEL and OPENAI_API_KEY"


class Endpoint(NamedTuple):
    base_url: str
    key_env: str | None
    key: str | None

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, {self.key_env!r})"


class Fallback(NamedTuple):
    """An entry of the setting `model.fallbacks`: a model that answers while the main model fails. If
    `base_url` is None, the endpoint of the main model is used."""

    model: str
    base_url: str | None = None
    key_env: str | None = None
    context_window: int | None = None


def open_main_model(settings: Settings, cooldowns: Cooldowns | None = None) -> Model:
    """Return the main model, which answers the person, with its fallbacks. Raise `ModelError` if the settings
    name no model.

    A fallback that cannot be opened is left out, so that an error in its settings does not affect the main
    model.
    """
    name = settings.model.default
    if name is None:
        raise ModelError(f"no model is chosen: {HOW}")
    models = [open_model(name, settings, settings.model.base_url, settings.model.key_env)]
    for fallback in list_fallbacks(settings):
        try:
            models.append(open_fallback(fallback, settings))
        except ModelError as problem:
            log.warning("the fallback model %s cannot be used: %s", fallback.model, problem)
    if len(models) == 1:
        return models[0]
    return FallbackModel(models, cooldowns or Cooldowns(settings.model.cooldown_seconds))


def list_fallbacks(settings: Settings) -> list[Fallback]:
    """Return the fallbacks of the main model. An entry that names the main model itself is left out."""
    main = settings.model
    listed = dict.fromkeys(Fallback(**fields) for fields in main.fallbacks)
    return [
        fallback
        for fallback in listed
        if fallback.model != main.default or fallback.base_url not in (None, main.base_url)
    ]


def open_fallback(fallback: Fallback, settings: Settings) -> Model:
    main, base_url, key_env = settings.model, fallback.base_url, fallback.key_env
    if base_url is None or base_url == main.base_url:
        base_url, key_env = main.base_url, key_env or main.key_env
    return open_model(fallback.model, settings, base_url, key_env, fallback.context_window)


def open_auxiliary_model(settings: Settings, cooldowns: Cooldowns | None = None) -> Model:
    """Return the model for titles and summaries. If the settings name none, this is the main model with its
    fallbacks."""
    chosen, main = settings.auxiliary, settings.model
    if chosen.model is None and chosen.base_url is None:
        return open_main_model(settings, cooldowns)
    name = chosen.model or main.default
    if name is None:
        raise ModelError(f"no model is chosen: {HOW}")
    if chosen.base_url is None or chosen.base_url == main.base_url:
        base_url, key_env = main.base_url, chosen.key_env or main.key_env
    else:  # never send the key of one endpoint to another
        base_url, key_env = chosen.base_url, chosen.key_env
    return open_model(name, settings, base_url, key_env)


def open_model(
    name: str,
    settings: Settings,
    base_url: str | None,
    key_env: str | None = None,
    window: int | None = None,
) -> Model:
    """Return a model by its name. If `base_url` is None, the endpoint depends on which keys are available.
    `window` is the context window in tokens. If it is None, the settings or the list of known models
    determine it."""
    if name == settings.model.default:
        window = window or settings.model.context_window
    window = window or settings.windows.get(name)
    if name == OFFLINE:
        from hermes.agent.models.offline import OfflineModel

        return OfflineModel() if window is None else OfflineModel(window)
    if name == local.NAME:
        return local.LocalModel(most_tokens=window)
    from hermes.agent.models.openai import MISSING, OpenAIModel
    from hermes.agent.models.prices import find_window

    if find_spec("openai") is None:
        raise ModelError(MISSING.format(format_install("chat")))

    at = choose_endpoint(base_url, key_env)
    return OpenAIModel(
        name,
        base_url=at.base_url,
        key=at.key,
        key_env=at.key_env,
        context_window=window or find_window(name),
        timeout=settings.model.timeout_seconds,
        most_retries=settings.model.max_retries,
    )


def choose_endpoint(base_url: str | None, key_env: str | None = None) -> Endpoint:
    """Return the endpoint with its key. If `base_url` is None, use OpenAI if its key is set, otherwise
    OpenRouter."""
    if base_url is None:
        provider = next(
            (candidate for candidate in (OPENAI, OPENROUTER) if dotenv.get_variable(candidate.key_env)), None
        )
        if provider is None:
            raise ModelError(f"there is no key and no address for a model: {HOW}")
        base_url = find_address(provider)
    name = key_env or find_key_variable(base_url)
    return Endpoint(base_url, name, None if name is None else dotenv.get_variable(name))
