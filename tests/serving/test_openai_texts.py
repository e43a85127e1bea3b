"""What OpenAI's interface asks of a model beyond a text: scores, echoes, schemas, calls."""

import json
import math

import numpy as np
import pytest
import tiny_checkpoints
from server_process import Client, in_thread
from test_openai_front import CHAT, Echo, events

import lamina
from lamina.serving.served_models import TextModel
from lamina.serving.tool_calls import Listener, Tools

tiny_checkpoints.bytes_vocabulary()  # skips all where the library is not installed
TEMPLATE = (
    "{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}{{ mood or '' }}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for call in m.tool_calls or [] %}<{{ call.function.name }} {{ call.function.arguments | tojson }}>"
    "{% endfor %}\n{% endfor %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return lamina.language.load(tiny_checkpoints.write_llama(folder, template=TEMPLATE))


@pytest.fixture(scope="module")
def echo():
    return Echo()


@pytest.fixture(scope="module")
def client(model, echo):
    with in_thread([TextModel("tiny", model), TextModel("echo", echo)]) as port:
        made = Client(port)
        yield made
        made.http.close()


def logprobs_of(model, tokens):
    """f64[n, words]: of what follows each token, by the whole network."""
    with lamina.no_grad():
        logits = model.network(lamina.tensor([tokens]))[0].double()
        return (logits - logits.logsumexp(-1, keepdim=True)).numpy()


def test_a_prompt_is_tokenised_once_and_fields_go_through(client, echo):
    before = echo.tokenised
    asked = {"model": "echo", "prompt": "a b", "max_tokens": 1, "top_p": 0, "top_k": -1, "min_p": 0.1}
    asked |= {"presence_penalty": 1, "frequency_penalty": -1.5, "logit_bias": {"7": -100}}
    asked |= {"repetition_penalty": 1.2, "max_completion_tokens": None, "best_of": 1, "store": False}
    del asked["max_completion_tokens"]
    assert client.json("POST", "/v1/completions", asked)[1]["usage"]["prompt_tokens"] == 2
    assert echo.tokenised == before + 1
    assert echo.asked == {
        "temperature": 1.0, "top_p": 1.0, "top_k": 1, "min_p": 0.1, "repetition_penalty": 1.2,
        "presence_penalty": 1, "frequency_penalty": -1.5, "logit_bias": {7: -100.0}, "schema": None,
        "logprobs": None,
    }  # fmt: skip
    more = {"max_completion_tokens": None, "max_tokens": 2, "n": None, "stop": None, "tools": []}
    assert client.json("POST", "/v1/chat/completions", CHAT | more)[1]["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("stream", [False, True])
def test_scores_of_a_completion_are_the_networks(client, model, stream):
    """Also of the prompt, where it is echoed: what evaluation harnesses ask for."""
    prompt = model.tokens("the cat in on")
    asked = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": 6,
        "temperature": 0,
        "logprobs": 2,
        "echo": True,
    }
    status, _, text = client("POST", "/v1/completions", asked | {"stream": stream})
    assert status == 200, text
    choices = [each["choices"][0] for each in (events(text) if stream else [json.loads(text)])]
    assert "".join(choice["text"] for choice in choices).startswith("the cat in on")
    scores = {
        name: [x for choice in choices if choice["logprobs"] for x in choice["logprobs"][name]]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    }
    answer = model.generate(prompt, max_tokens=6, temperature=0)
    list(answer)
    tokens = [*prompt, *answer.tokens]
    want = logprobs_of(model, tokens)
    assert scores["tokens"] == [model.spelled(token).decode(errors="replace") for token in tokens]
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    got = np.array(scores["token_logprobs"][1:])
    np.testing.assert_allclose(got, [row[t] for row, t in zip(want, tokens[1:])], rtol=1e-4, atol=1e-4)
    for row, top in zip(want, scores["top_logprobs"][1:]):
        best = model.spelled(int(row.argmax())).decode(errors="replace")
        assert math.isclose(top[best], row.max(), abs_tol=1e-4) and len(top) <= 3
    assert scores["text_offset"][:3] == [0, len(scores["tokens"][0]), len("".join(scores["tokens"][:2]))]


def test_an_echo_without_scores_or_tokens_to_come(client):
    asked = {"model": "tiny", "prompt": "the cat", "max_tokens": 0, "echo": True}
    _, said = client.json("POST", "/v1/completions", asked)
    assert said["choices"][0]["text"] == "the cat" and said["usage"]["completion_tokens"] == 0
    status, said = client.json("POST", "/v1/completions", asked | {"prompt": [5, 900], "logprobs": 1})
    assert (status, "none of 320 tokens" in said["error"]["message"]) == (400, True)


@pytest.mark.parametrize("stream", [False, True])
def test_scores_of_a_chat(client, model, stream):
    asked = {"model": "tiny", "messages": CHAT["messages"], "max_tokens": 5, "seed": 1, "stream": stream}
    status, _, text = client("POST", "/v1/chat/completions", asked | {"logprobs": True, "top_logprobs": 3})
    assert status == 200, text
    choices = [each["choices"][0] for each in (events(text) if stream else [json.loads(text)])]
    content = [each for choice in choices if choice["logprobs"] for each in choice["logprobs"]["content"]]
    prompt = model.tokens(model.prompt(CHAT["messages"]))
    answer = model.generate(prompt, max_tokens=5, seed=1)
    list(answer)
    want = logprobs_of(model, [*prompt, *answer.tokens])[len(prompt) - 1 :]
    assert len(content) == len(answer.tokens) > 0
    for each, token, row in zip(content, answer.tokens, want):
        assert bytes(each["bytes"]) == model.spelled(token)
        assert math.isclose(each["logprob"], row[token], abs_tol=1e-4)
        tops = [top["logprob"] for top in each["top_logprobs"]]
        np.testing.assert_allclose(tops, np.sort(row)[::-1][:3], rtol=1e-4, atol=1e-4)


PERSON = {
    "type": "object",
    "properties": {"age": {"type": "integer", "maximum": 99, "minimum": 0}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["age", "kind"],
    "additionalProperties": False,
}


def test_answers_fit_a_schema(client):
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    asked = {"model": "tiny", "messages": CHAT["messages"], "max_tokens": 200}
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    for seed in range(4):
        _, said = client.json("POST", "/v1/chat/completions", asked | {"response_format": form, "seed": seed})
        (choice,) = said["choices"]
        found = json.loads(choice["message"]["content"])
        assert (
            choice["finish_reason"] == "stop" and found["kind"] in ("cat", "dog") and 0 <= found["age"] <= 99
        )
    form = {"type": "json_object"}
    _, said = client.json(
        "POST", "/v1/completions", {"model": "tiny", "prompt": "x", "response_format": form}
    )
    assert said["choices"][0]["text"].lstrip().startswith("{")
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "colour"}}}
    status, said = client.json("POST", "/v1/chat/completions", asked | {"response_format": form})
    assert (status, "schema" in said["error"]["message"]) == (400, True), said


TOOLS = [
    {"type": "function", "function": {"name": "weigh", "description": "weigh it", "parameters": PERSON}},
    {"type": "function", "function": {"name": "wait"}},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weigh"}}])
def test_a_call_that_is_demanded_comes(client, choice, stream):
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    asked = {"model": "tiny", "messages": CHAT["messages"], "max_tokens": 300, "seed": 3, "tools": TOOLS}
    status, _, text = client(
        "POST", "/v1/chat/completions", asked | {"tool_choice": choice, "stream": stream}
    )
    assert status == 200, text
    if stream:
        deltas = [each["choices"][0] for each in events(text)]
        calls = [call for each in deltas for call in each["delta"].get("tool_calls", [])]
        assert deltas[-1]["finish_reason"] == "tool_calls"
    else:
        (found,) = json.loads(text)["choices"]
        assert (found["finish_reason"], found["message"]["content"]) == ("tool_calls", None)
        calls = found["message"]["tool_calls"]
    (call,) = calls
    assert call["type"] == "function" and call["id"].startswith("call_")
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "weigh":
        assert set(arguments) == {"age", "kind"}
    else:
        assert choice == "required" and call["function"]["name"] == "wait"


def test_templates_are_told_of_tools_calls_and_their_results(client, model):
    call = {"id": "c1", "type": "function", "function": {"name": "weigh", "arguments": '{"age": 3}'}}
    messages = [
        {"role": "user", "content": "x"},
        {},
        {"role": "tool", "tool_call_id": "c1", "content": "light"},
    ]
    parsed = {**call, "function": {"name": "weigh", "arguments": {"age": 3}}}
    messages[1] = {"role": "assistant", "content": "", "tool_calls": [parsed]}
    told = model.prompt(messages, tools=TOOLS, mood="calm")
    assert told.startswith("[weigh][wait]calm") and '<weigh {"age": 3}>' in told
    messages[1] = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}
    asked = {"model": "tiny", "messages": messages, "max_tokens": 1, "tools": TOOLS}
    _, said = client.json("POST", "/v1/chat/completions", asked | {"chat_template_kwargs": {"mood": "calm"}})
    assert said["usage"]["prompt_tokens"] == len(model.tokens(told))
    _, said = client.json("POST", "/v1/chat/completions", asked | {"tool_choice": "none"})
    rest = told.removeprefix("[weigh][wait]calm")
    assert said["usage"]["prompt_tokens"] == len(model.tokens(rest))


HERMES = 'Let me see.\n<tool_call>\n{"name": "weigh", "arguments": {"age": 1}}\n</tool_call>'
WRITTEN = [
    (HERMES, "Let me see.", [("weigh", {"age": 1})]),
    (HERMES + HERMES[12:].replace("weigh", "wait"), "Let me see.",
     [("weigh", {"age": 1}), ("wait", {"age": 1})]),
    ('{"name": "wait", "parameters": {}}', "", [("wait", {})]),
    (' [TOOL_CALLS][{"name": "weigh", "arguments": "{\\"age\\": 1}"}]', "", [("weigh", {"age": 1})]),
    ('{"name": "nobody", "parameters": {}}', None, []),
    ("[1, 2] are numbers", None, []),
    ("a <tool_call> is what?", None, []),
    ("1 < 2, <tool", None, []),
    ("", None, []),
]  # fmt: skip


@pytest.mark.parametrize("text, content, calls", WRITTEN)
def test_calls_are_read_out_of_texts_however_they_come(text, content, calls):
    tools = Tools(TOOLS, "auto")
    content = text if content is None else content
    for size in (1, 3, 1000):
        listener = Listener(tools)
        passed = "".join(listener.told(text[at : at + size]) for at in range(0, len(text), size))
        rest, found = listener.rest()
        assert (passed + rest).strip() == content.strip()
        assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in found] == calls
    whole, found = tools.calls_in(text)
    assert (whole, len(found)) == (content, len(calls))
    assert len(Tools(TOOLS, "auto", most=1).calls_in(text)[1]) == min(1, len(calls))


def test_text_before_a_call_is_passed_on_as_it_comes():
    listener = Listener(Tools(TOOLS, None))
    assert [listener.told(piece) for piece in ("Let ", "me <", "b", "> see <tool", "_call>{")] == [
        "Let ", "me ", "<b", "> see ", "",
    ]  # fmt: skip
