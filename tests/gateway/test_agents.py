"""All people share one model. Each person has a separate memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes import errors
from hermes.agent.components import ModelChoice
from hermes.agent.models.model import Model, NoSuchModel
from hermes.conversation.agents import StandardAgentProvider, make_person_folder
from tests.gateway.local_gateway import ANN, BOB, LocalGateway, WithBrain, in_group, in_thread


def test_the_name_of_a_folder_does_not_reveal_the_person(home: Path) -> None:
    ann, bob = (make_person_folder(f"telegram:person:{name}") for name in ("ann", "bob"))
    assert ann != bob
    assert ann.parent == bob.parent == home / "people"
    assert "ann" not in str(ann.relative_to(home))
    assert ann.stat().st_mode & 0o777 == 0o700
    assert make_person_folder("telegram:person:ann") == ann


def test_the_owner_of_the_machine_has_no_folder_among_people() -> None:
    with pytest.raises(errors.InvalidArgument):
        make_person_folder("")


async def test_a_person_has_one_memory_in_all_private_chats() -> None:
    add = 'use memory {"action": "add", "target": "user", "content": "likes owls"}'
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, add)
        for who, knows in ((in_group(ANN), True), (in_thread(ANN), False), (BOB, False)):
            await gateway.asks(who, "hello")
            assert ("likes owls" in gateway.brain.requests[-1].messages[0]["content"]) is knows


async def test_an_unavailable_model_is_tried_again_with_the_next_message() -> None:
    class Late(WithBrain):
        tries = 0

        def make_model(self, wish: ModelChoice) -> Model:
            self.tries += 1
            if self.tries == 1:
                raise NoSuchModel("there is no such model yet")
            return super().make_model(wish)

    class LateGateway(LocalGateway):
        def agents(self) -> StandardAgentProvider:
            return StandardAgentProvider(Late(self.brain))

    async with LateGateway() as gateway:
        replies = await gateway.asks(ANN, "hello")
        assert "The model is not available just now." in replies[0]
        assert gateway.talk(ANN) == ["hello"]
        assert (await gateway.asks(ANN, "again"))[0].endswith("again")


async def test_a_person_who_is_not_an_owner_gets_only_the_tools_for_everybody() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        given = {tool["function"]["name"] for tool in gateway.brain.requests[-1].tools}
    own = {"memory", "skills_list", "skill_view", "skill_manage", "session_search", "todo"}
    assert given == {*own, "delegate_task"}
