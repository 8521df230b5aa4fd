"""Questions of a running call, asked and answered over several requests: the call runs once, and only its own client
can go on with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.dialects.mcp.stateless_world import (
    ALL_ABILITIES,
    FORM,
    OTHER_TOKEN,
    TOKEN,
    World,
    entry,
    messages,
    until,
    world,
)
from tooldock.dialects.mcp.jsonrpc import INVALID_PARAMS, MISSING_CAPABILITY
from tooldock.dialects.mcp.stateless import LOG_LEVEL_KEY
from tooldock.errors import NoBackChannel
from tooldock.model import Channel

FORM_SCHEMA = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
SURE = {"message": "Sure?", "schema": FORM_SCHEMA}
YES = {"action": "accept", "content": {"sure": True}}


class Tool:
    """Asks once, and counts how often it was started and finished."""

    def __init__(self, questions: int = 1) -> None:
        self.started = 0
        self.finished = 0
        self.cancelled = 0
        self.answers: list[Any] = []
        self._questions = questions

    async def __call__(self, arguments: dict[str, Any], channel: Channel) -> Any:
        self.started += 1
        try:
            for _ in range(self._questions):
                self.answers.append(await channel.ask("elicit", SURE))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.finished += 1
        return {"answers": self.answers}


def asked(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()["result"]
    assert result["resultType"] == "input_required", result
    return result


def refused(response: httpx.Response) -> None:
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["code"] == INVALID_PARAMS
    assert error["data"] == {"reason": "invalid_request_state"}


def answer(result: dict[str, Any], **answers: Any) -> dict[str, Any]:
    return {"requestState": result["requestState"], "inputResponses": answers}


async def test_a_question_becomes_a_result_and_the_repeated_request_finishes_the_same_call(tmp_path: Path) -> None:
    tool = Tool()
    async with world(tmp_path, entry("one", {"ask": tool})) as here:
        first = asked(await here.call("ask", {"row": 7}, able=FORM, id=5))
        assert first["inputRequests"] == {
            "elicitation_1": {
                "method": "elicitation/create",
                "params": {"mode": "form", "message": "Sure?", "requestedSchema": FORM_SCHEMA},
            }
        }
        assert "ttlMs" not in first
        assert here.audit() == []
        last = await here.call("ask", {"row": 7}, answer(first, elicitation_1=YES), able=FORM, id=6)
        assert last.json()["id"] == 6
        assert last.json()["result"]["resultType"] == "complete"
        assert last.json()["result"]["structuredContent"] == {"answers": [YES]}
        assert (tool.started, tool.finished) == (1, 1)
        assert len(here.audit()) == 1
        assert (here.stateless.rounds.running, here.stateless.rounds.waiting) == (0, 0)


async def test_several_rounds_are_still_one_call_with_a_new_state_each(tmp_path: Path) -> None:
    tool = Tool(questions=3)
    async with world(tmp_path, entry("one", {"ask": tool})) as here:
        states = set()
        result = asked(await here.call("ask", able=FORM))
        for number in (1, 2):
            states.add(result["requestState"])
            assert list(result["inputRequests"]) == [f"elicitation_{number}"]
            result = asked(await here.call("ask", {}, answer(result, **{f"elicitation_{number}": YES}), able=FORM))
        states.add(result["requestState"])
        done = await here.call("ask", {}, answer(result, elicitation_3=YES), able=FORM)
        assert done.json()["result"]["resultType"] == "complete"
        assert len(states) == 3
        assert (tool.started, tool.finished) == (1, 1)


async def test_questions_asked_at_once_travel_in_one_answer(tmp_path: Path) -> None:
    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        async def late() -> Any:
            await asyncio.sleep(0)
            return await channel.ask("roots", {})

        return await asyncio.gather(channel.ask("elicit", SURE), channel.ask("sample", {"maxTokens": 9}), late())

    async with world(tmp_path, entry("one", {"ask": ask})) as here:
        first = asked(await here.call("ask", able=ALL_ABILITIES))
        assert {key: told["method"] for key, told in first["inputRequests"].items()} == {
            "elicitation_1": "elicitation/create",
            "sampling_1": "sampling/createMessage",
            "roots_1": "roots/list",
        }
        answers = answer(first, elicitation_1=YES, sampling_1={"role": "assistant"}, roots_1={"roots": []})
        done = await here.call("ask", {}, answers, able=ALL_ABILITIES)
        assert done.json()["result"]["content"][0]["text"] == '[{"action":"accept","content":{"sure":true}},' + (
            '{"role":"assistant"},{"roots":[]}]'
        )


async def test_a_form_with_a_name_lends_it_to_its_question(tmp_path: Path) -> None:
    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        titles = ("UserName", "UserName", "HTTPCode2", "???", "x" * 100, 7)
        await asyncio.gather(*(channel.ask("elicit", {"message": "?", "schema": {"title": title}}) for title in titles))

    async with world(tmp_path, entry("one", {"ask": ask})) as here:
        first = asked(await here.call("ask", able=FORM))
        assert sorted(first["inputRequests"]) == [
            "elicitation_1",
            "elicitation_2",
            "elicitation_3",
            "http_code_2",
            "user_name",
            "user_name_2",
        ]


async def test_prompts_and_resources_may_ask_as_well(tmp_path: Path) -> None:
    async def render(arguments: dict[str, Any], channel: Channel) -> Any:
        told = await channel.ask("elicit", SURE)
        return {"messages": [{"role": "user", "content": {"type": "text", "text": told["action"]}}]}

    async def read(arguments: dict[str, Any], channel: Channel) -> Any:
        told = await channel.ask("elicit", SURE)
        return {"contents": [{"uri": "x://1", "text": told["action"]}]}

    async with world(tmp_path, entry("one", {"prompt_a": render, "x://1": read})) as here:
        for method, params in (("prompts/get", {"name": "prompt_a"}), ("resources/read", {"uri": "x://1"})):
            first = asked(await here.post(method, params, able=FORM))
            done = await here.post(method, {**params, **answer(first, elicitation_1=YES)}, able=FORM)
            assert done.json()["result"]["resultType"] == "complete"
            assert "accept" in done.text


async def test_missing_answers_are_asked_for_again_and_unknown_ones_ignored(tmp_path: Path) -> None:
    tool = Tool()
    async with world(tmp_path, entry("one", {"ask": tool})) as here:
        result = asked(await here.call("ask", able=FORM))
        incomplete: list[dict[str, Any]] = [{"inputResponses": {}}, {"inputResponses": {"wrong_key": YES, "x": 7}}, {}]
        for more in incomplete:
            again = asked(await here.call("ask", {}, {"requestState": result["requestState"], **more}, able=FORM))
            assert again["inputRequests"] == result["inputRequests"]
            assert again["requestState"] != result["requestState"]
            result = again
        done = await here.call("ask", {}, answer(result, elicitation_1=YES, extra={"action": "?"}), able=FORM)
        assert done.json()["result"]["structuredContent"] == {"answers": [YES]}
        assert tool.started == 1


async def test_of_several_questions_only_the_unanswered_are_asked_again(tmp_path: Path) -> None:
    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        return await asyncio.gather(channel.ask("elicit", SURE), channel.ask("roots", {}))

    async with world(tmp_path, entry("one", {"ask": ask})) as here:
        first = asked(await here.call("ask", able=ALL_ABILITIES))
        second = asked(await here.call("ask", {}, answer(first, roots_1={"roots": []}), able=ALL_ABILITIES))
        assert list(second["inputRequests"]) == ["elicitation_1"]
        done = await here.call("ask", {}, answer(second, elicitation_1=YES), able=ALL_ABILITIES)
        assert done.json()["result"]["resultType"] == "complete"


async def test_an_answer_that_is_none_is_refused_and_the_state_stays_good(tmp_path: Path) -> None:
    tool = Tool()
    wrong: list[Any] = [7, None, "yes", [], True, {}, {"action": "maybe"}, {"action": 7}, {"content": {}}]
    async with world(tmp_path, entry("one", {"ask": tool})) as here:
        first = asked(await here.call("ask", able=FORM))
        for given in wrong:
            response = await here.call("ask", {}, answer(first, elicitation_1=given), able=FORM)
            assert response.status_code == 400, given
            assert response.json()["error"]["code"] == INVALID_PARAMS
        assert tool.answers == []
        done = await here.call("ask", {}, answer(first, elicitation_1=YES), able=FORM)
        assert done.json()["result"]["resultType"] == "complete"


@pytest.mark.parametrize("able", [{}, FORM])
async def test_answers_without_a_state_mean_nothing_and_must_still_be_an_object(tmp_path: Path, able: Any) -> None:
    tool = Tool()
    async with world(tmp_path, entry("one", {"ask": tool})) as here:
        nonsense: list[Any] = [None, 7, [], "x"]
        for wrong in nonsense:
            response = await here.call("ask", {}, {"inputResponses": wrong}, able=able)
            assert response.status_code == 400
            assert response.json()["error"]["code"] == INVALID_PARAMS
        assert tool.started == 0
        response = await here.call("ask", {}, {"inputResponses": {"elicitation_1": YES}}, able=able)
        if able:
            asked(response)
        else:
            assert response.json()["error"]["code"] == MISSING_CAPABILITY
        assert tool.answers == []


async def test_g54_a_made_up_state_is_refused(tmp_path: Path) -> None:
    tool = Tool()
    made_up: list[Any] = [None, 7, "", "v1.", "v1.abc", {}, "x" * 10_000]
    async with world(tmp_path, entry("one", {"ask": tool})) as here:
        for state in made_up:
            for able in ({}, FORM):
                refused(await here.call("ask", {}, {"requestState": state, "inputResponses": {}}, able=able))
        assert tool.started == 0


async def test_g54_a_state_is_good_for_one_use_by_its_own_client_for_the_same_request(tmp_path: Path) -> None:
    tool = Tool(questions=2)
    both = {"ask": tool, "other": Tool()}
    async with world(tmp_path, entry("one", both), entry("two", {"ask": Tool()})) as here:
        first = asked(await here.call("ask", {"row": 7}, able=FORM))
        more = answer(first, elicitation_1=YES)
        refused(await here.call("ask", {"row": 7}, more, able=FORM, token=OTHER_TOKEN))
        refused(await here.call("ask", {"row": 7}, more, able=FORM, namespace="two"))
        refused(await here.call("other", {"row": 7}, more, able=FORM))
        refused(await here.call("ask", {"row": 8}, more, able=FORM))
        refused(await here.call("ask", {}, more, able=FORM))
        tampered = {**more, "requestState": more["requestState"] + "-TAMPERED"}
        refused(await here.call("ask", {"row": 7}, tampered, able=FORM))
        assert tool.answers == []
        # None of that used it up; going on with it does.
        second = asked(await here.call("ask", {"row": 7}, more, able=FORM))
        refused(await here.call("ask", {"row": 7}, more, able=FORM))
        done = await here.call("ask", {"row": 7}, answer(second, elicitation_2=YES), able=FORM)
        assert done.json()["result"]["resultType"] == "complete"
        refused(await here.call("ask", {"row": 7}, answer(second, elicitation_2=YES), able=FORM))
        assert tool.started == 1


async def test_g54_two_callers_with_the_same_request_have_two_calls(tmp_path: Path) -> None:
    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        return (await channel.ask("elicit", SURE))["content"]["who"]

    async with world(tmp_path, entry("one", {"ask": ask})) as here:
        mine, theirs = [asked(await here.call("ask", able=FORM, token=token)) for token in (TOKEN, OTHER_TOKEN)]
        for result, token, who in ((theirs, OTHER_TOKEN, "them"), (mine, TOKEN, "me")):
            told = {"action": "accept", "content": {"who": who}}
            done = await here.call("ask", {}, answer(result, elicitation_1=told), able=FORM, token=token)
            assert done.json()["result"]["content"][0]["text"] == who


async def test_g54_a_state_does_not_outlive_its_gateway(tmp_path: Path) -> None:
    async with world(tmp_path, entry("one", {"ask": Tool()})) as here:
        first = asked(await here.call("ask", able=FORM))
    async with world(tmp_path, entry("one", {"ask": Tool()})) as there:
        refused(await there.call("ask", {}, answer(first, elicitation_1=YES), able=FORM))


async def test_g54_a_client_that_never_comes_back_leaves_nothing_behind(tmp_path: Path) -> None:
    tool = Tool()
    async with world(tmp_path, entry("one", {"ask": tool}), seconds=0.2) as here:
        first = asked(await here.call("ask", able=FORM))
        rounds = here.stateless.rounds
        assert (rounds.running, rounds.waiting) == (1, 1)
        await until("it is gone", lambda: not rounds.running and not rounds.waiting)
        await until("it is recorded", here.audit)
        refused(await here.call("ask", {}, answer(first, elicitation_1=YES), able=FORM))


async def test_a_question_nobody_answers_in_time_fails_with_a_reason(tmp_path: Path) -> None:
    """A client that keeps asking without answering cannot keep a call for ever."""
    told: list[str] = []

    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        try:
            await channel.ask("elicit", SURE)
        except NoBackChannel as error:
            told.append(error.message)
        return "gave up"

    async with world(tmp_path, entry("one", {"ask": ask}), seconds=0.3) as here:
        response = await here.call("ask", able=FORM)
        async with asyncio.timeout(5):
            while (result := response.json()["result"])["resultType"] == "input_required":
                response = await here.call("ask", {}, answer(result), able=FORM)
        assert result["content"][0]["text"] == "gave up"
        assert "did not answer" in told[0]


async def test_g54_only_so_many_calls_of_a_caller_wait_and_the_oldest_goes(tmp_path: Path) -> None:
    tool = Tool()
    async with world(tmp_path, entry("one", {"ask": tool}), entry("two", {"ask": tool}), per_caller=2) as here:
        other = asked(await here.call("ask", able=FORM, token=OTHER_TOKEN))
        elsewhere = asked(await here.call("ask", able=FORM, namespace="two"))
        first, second, third = [asked(await here.call("ask", able=FORM)) for _ in range(3)]
        await until("the oldest is stopped", lambda: tool.cancelled == 1)
        refused(await here.call("ask", {}, answer(first, elicitation_1=YES), able=FORM))
        for result, how in (
            (second, {}),
            (third, {}),
            (other, {"token": OTHER_TOKEN}),
            (elsewhere, {"namespace": "two"}),
        ):
            done = await here.call("ask", {}, answer(result, elicitation_1=YES), able=FORM, **how)
            assert done.json()["result"]["resultType"] == "complete"


async def test_g54_only_so_many_calls_wait_in_all(tmp_path: Path) -> None:
    tool = Tool()
    async with world(tmp_path, entry("one", {"ask": tool}), total=2) as here:
        first, second = [asked(await here.call("ask", able=FORM)) for _ in range(2)]
        asked(await here.call("ask", able=FORM, token=OTHER_TOKEN))
        assert here.stateless.rounds.waiting == 2
        refused(await here.call("ask", {}, answer(first, elicitation_1=YES), able=FORM))
        done = await here.call("ask", {}, answer(second, elicitation_1=YES), able=FORM)
        assert done.json()["result"]["resultType"] == "complete"


async def test_g54_a_caller_with_many_waiting_calls_pushes_out_its_own(tmp_path: Path) -> None:
    tool = Tool()
    names = ("one", "two", "three")
    async with world(tmp_path, *(entry(name, {"ask": tool}) for name in names), total=3, per_caller=2) as here:
        other = asked(await here.call("ask", able=FORM, token=OTHER_TOKEN))
        for name in ("one", "one", "two", "two", "three", "three"):
            asked(await here.call("ask", able=FORM, namespace=name))
        assert here.stateless.rounds.waiting == 3
        done = await here.call("ask", {}, answer(other, elicitation_1=YES), able=FORM, token=OTHER_TOKEN)
        assert done.json()["result"]["resultType"] == "complete"


async def test_calls_that_wait_are_stopped_when_the_gateway_closes(tmp_path: Path) -> None:
    tool = Tool()
    async with world(tmp_path, entry("one", {"ask": tool})) as here:
        asked(await here.call("ask", able=FORM))
        here.stateless.close()
        await until("it is stopped", lambda: tool.cancelled == 1)
        assert (await here.call("ask", able=FORM)).status_code == 503
        await until("nor is the other kept", lambda: not here.stateless.rounds.running)


async def test_g41_a_client_that_leaves_while_its_call_goes_on_cancels_it(tmp_path: Path) -> None:
    working = asyncio.Event()
    ended: list[str] = []

    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        await channel.ask("elicit", SURE)
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("stopped")

    async with world(tmp_path, entry("one", {"ask": ask})) as here:
        first = asked(await here.call("ask", able=FORM))
        second = asyncio.ensure_future(here.call("ask", {}, answer(first, elicitation_1=YES), able=FORM))
        await asyncio.wait_for(working.wait(), 5)
        second.cancel()
        await until("the call is stopped", lambda: ended)
        await until("it is recorded", here.audit)
        assert here.audit()[0]["error"] == "cancelled"


async def test_what_a_call_says_goes_to_the_request_that_is_there_with_its_own_token(tmp_path: Path) -> None:
    suspended = asyncio.Event()

    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        await channel.progress(1, 10, None)

        async def meanwhile() -> None:
            await suspended.wait()
            await channel.progress(5, 10, None)
            await channel.log("error", "nobody hears this", None, None)

        await asyncio.gather(channel.ask("elicit", SURE), meanwhile())
        await channel.progress(7, 10, None)
        await channel.log("error", "somebody hears this", None, None)
        return "done"

    async with world(tmp_path, entry("one", {"ask": ask})) as here:
        first = messages(await here.call("ask", able=FORM, meta={"progressToken": "a"}))
        assert [told["params"]["progressToken"] for told in first[:-1]] == ["a"]
        result = first[-1]["result"]
        assert result["resultType"] == "input_required"
        suspended.set()
        await asyncio.sleep(0)
        meta = {"progressToken": 2, LOG_LEVEL_KEY: "error"}
        second = messages(await here.call("ask", {}, answer(result, elicitation_1=YES), able=FORM, meta=meta))
        progress, log, last = second
        assert (progress["params"]["progressToken"], progress["params"]["progress"]) == (2, 7)
        assert log["params"]["data"] == "somebody hears this"
        assert last["result"]["resultType"] == "complete"


async def test_a_call_that_ends_while_its_client_is_away_keeps_its_result(tmp_path: Path) -> None:
    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        try:
            async with asyncio.timeout(0.02):
                await channel.ask("elicit", SURE)
        except TimeoutError:
            return "went on alone"

    async with world(tmp_path, entry("one", {"ask": ask})) as here:
        first = asked(await here.call("ask", able=FORM))
        await until("the call is over", lambda: not here.stateless.rounds.running)
        done = await here.call("ask", {}, answer(first, elicitation_1=YES), able=FORM)
        assert done.json()["result"]["content"][0]["text"] == "went on alone"


async def test_g53_a_repeated_request_that_can_do_less_is_not_asked_again(tmp_path: Path) -> None:
    async with world(tmp_path, entry("one", {"ask": Tool()})) as here:
        first = asked(await here.call("ask", able=FORM))
        response = await here.call("ask", {}, answer(first), able={"roots": {}})
        assert response.status_code == 400
        assert response.json()["error"]["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
        done = await here.call("ask", {}, answer(first, elicitation_1=YES))
        assert done.json()["result"]["resultType"] == "complete"


async def test_other_methods_never_ask(tmp_path: Path) -> None:
    async with world(tmp_path, entry("one", {"ask": Tool()})) as here:
        for method in ("tools/list", "prompts/list", "resources/list", "server/discover"):
            response = await here.post(method, {"inputResponses": {}, "requestState": "v1.x"}, able=ALL_ABILITIES)
            assert response.json()["result"]["resultType"] == "complete"


async def test_a_call_has_a_bounded_number_of_open_questions(tmp_path: Path) -> None:
    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        told = await asyncio.gather(*(channel.ask("elicit", SURE) for _ in range(65)), return_exceptions=True)
        return sum(isinstance(one, NoBackChannel) for one in told)

    async with world(tmp_path, entry("one", {"ask": ask})) as here:
        first = asked(await here.call("ask", able=FORM))
        assert len(first["inputRequests"]) == 64
        answers = dict.fromkeys(first["inputRequests"], YES)
        done = await here.call("ask", {}, answer(first, **answers), able=FORM)
        assert done.json()["result"]["content"][0]["text"] == "1"


async def test_a_hundred_calls_with_questions_at_once_get_each_their_own_answer(tmp_path: Path) -> None:
    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        return (await channel.ask("elicit", SURE))["content"]["n"] + arguments["n"]

    async def both(here: World, number: int) -> None:
        first = asked(await here.call("ask", {"n": number}, able=FORM))
        told = {"action": "accept", "content": {"n": number * 1000}}
        done = await here.call("ask", {"n": number}, answer(first, elicitation_1=told), able=FORM)
        assert done.json()["result"]["content"][0]["text"] == str(number * 1001)

    async with world(tmp_path, entry("one", {"ask": ask}), per_caller=100) as here:
        await asyncio.gather(*(both(here, number) for number in range(50)))
        assert here.stateless.rounds.running == 0
