"""The library `openai` as a client: streams, stop words, scores, several texts, schemas, calls, errors."""

import gzip
import json

import numpy as np
import pytest
import tiny_checkpoints
from server_process import in_thread
from test_openai_front import Letters
from test_openai_texts import PERSON, TEMPLATE, TOOLS

import lamina
from lamina.serving.served_models import TextModel

tiny_checkpoints.bytes_vocabulary()  # skips all where the library is not installed
openai = pytest.importorskip("openai", reason="the client `openai` is not installed")
MESSAGES = [{"role": "user", "content": "the cat"}]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    model = lamina.language.load(tiny_checkpoints.write_llama(folder, template=TEMPLATE))
    with in_thread([TextModel("tiny", model), TextModel("letters", Letters())], tokens=("secret",)) as port:
        with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="secret", max_retries=0) as client:
            yield client


def test_streams_say_what_whole_answers_say(client):
    how = {"model": "tiny", "messages": MESSAGES, "max_tokens": 12, "seed": 1, "n": 2}
    whole = client.chat.completions.create(**how)
    told = ["", ""]
    usage = None
    for chunk in client.chat.completions.create(**how, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            told[choice.index] += choice.delta.content or ""
    assert told == [choice.message.content for choice in whole.choices] and told[0] != told[1]
    assert usage == whole.usage
    how = {
        "model": "tiny",
        "prompt": "in the",
        "max_tokens": 12,
        "seed": 2,
        "stop": ["a", "e"],
        "logprobs": 2,
    }
    (whole,) = client.completions.create(**how).choices
    pieces = [*client.completions.create(**how, stream=True)]
    assert "".join(piece.choices[0].text for piece in pieces) == whole.text
    assert not {*"ae"} & {*whole.text} and whole.finish_reason in ("stop", "length")
    assert len(whole.logprobs.tokens) == len(whole.logprobs.token_logprobs)


def test_scores_schemas_and_calls(client):
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    how = {"model": "tiny", "messages": MESSAGES, "max_tokens": 300, "seed": 1}
    (choice,) = client.chat.completions.create(**how, logprobs=True, top_logprobs=2).choices
    assert all(len(each.top_logprobs) == 2 for each in choice.logprobs.content)
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    (choice,) = client.chat.completions.create(**how, response_format=form).choices
    assert set(json.loads(choice.message.content)) == {"age", "kind"}
    (choice,) = client.chat.completions.create(**how, tools=TOOLS, tool_choice="required").choices
    (call,) = choice.message.tool_calls
    assert call.function.name in ("weigh", "wait")
    again = [*MESSAGES, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    answer = client.chat.completions.create(**(how | {"messages": again, "max_tokens": 3}), tools=TOOLS)
    assert answer.usage.completion_tokens <= 3


def test_vectors_in_both_forms_of_texts_and_tokens(client):
    for given in ("abba", ["abba"], [*b"abba"], [[*b"abba"]]):
        for form in ({}, {"encoding_format": "float"}):
            (found,) = client.embeddings.create(model="letters", input=given, **form).data
            assert np.allclose(found.embedding, [2, 2, 0])


def test_errors_are_of_the_kinds_that_the_client_knows(client):
    how = {"model": "tiny", "messages": MESSAGES}
    with pytest.raises(openai.NotFoundError) as told:
        client.chat.completions.create(**(how | {"model": "gpt"}))
    assert (told.value.param, told.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.BadRequestError, match="temperature is a number from 0 to 2") as told:
        client.chat.completions.create(**how, temperature=3)
    assert (told.value.param, told.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.AuthenticationError) as told:
        client.with_options(api_key="other").models.list()
    assert told.value.code == "invalid_api_key"
    with pytest.raises(openai.BadRequestError, match="leave no room") as told:
        client.completions.create(model="tiny", prompt=[5] * 700)
    assert told.value.code == "context_length_exceeded"
    assert [model.id for model in client.models.list()] == ["tiny", "letters"]
    assert client.models.retrieve("tiny").object == "model"


def test_a_body_may_be_packed(client):
    body = gzip.compress(json.dumps({"model": "letters", "input": "ab"}).encode())
    answer = client._client.post(
        "embeddings", content=body, headers={"content-encoding": "gzip", "authorization": "Bearer secret"}
    )
    assert answer.json()["data"][0]["embedding"] == [1, 1, 0]
