"""`python -m lamina chat` and `embed`: turns, a context that slides, standard input, refusals."""

import io

import pytest
import tiny_checkpoints

import lamina
from lamina.__main__ import main
from lamina.language.chat import Conversation

tiny_checkpoints.bytes_vocabulary()  # skips all where the library is not installed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_checkpoints.write_llama(tmp_path_factory.mktemp("models") / "tiny")


def conversation(folder, context, system=None, most=8):
    model = lamina.language.load(folder, context=context)
    return Conversation(model, system, most, {"temperature": 0.8, "seed": 0})


def test_the_oldest_turns_are_forgotten_and_the_system_stays(folder):
    talk = conversation(folder, 150, "be brief")
    told = []
    for number in range(8):
        told.append("".join(talk.answer(f"message {number}")))
        prompt = talk.model.text(talk.prompt(8)) if talk.turns else ""
    assert prompt.startswith("system\nbe brief")
    assert "message 7" in prompt and "message 0" not in prompt
    assert talk.turns[0]["role"] == "user"
    talk.reset()
    assert "message" not in talk.model.text(talk._tokens())


def test_a_message_that_is_too_long_is_refused_and_forgotten(folder):
    talk = conversation(folder, 60)
    with pytest.raises(lamina.language.CheckpointError, match="the context has 60"):
        [*talk.answer("the cat " * 30)]
    assert talk.turns == []
    list(talk.answer("hi"))


def test_an_answer_that_is_stopped_counts_as_far_as_it_came(folder):
    talk = conversation(folder, 300)
    talk.options = {"temperature": 0}
    pieces = talk.answer("hi")
    first = next(pieces)
    pieces.close()
    assert talk.turns == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": first}]


def test_one_prompt_prints_its_answer(folder, capsys):
    arguments = ["chat", str(folder), "--prompt", "hi", "--max-tokens", "6", "--seed", "1"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == first
    assert main([*arguments[:-1], "2"]) == 0
    assert capsys.readouterr().out != first


def test_lines_of_standard_input_are_messages(folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n\n/reset\nhi\n/quit\nnever\n"))
    assert main(["chat", str(folder), "--max-tokens", "5", "--seed", "1"]) == 0
    answers = capsys.readouterr().out
    half = len(answers) // 2
    assert answers[:half] == answers[half:]  # forgotten in between, and of one seed


def test_a_model_without_a_template_continues_texts(tmp_path, capsys):
    folder = tiny_checkpoints.write_llama(tmp_path / "plain", template=None)
    assert main(["chat", str(folder), "--prompt", "the cat", "--max-tokens", "5"]) == 0
    with pytest.raises(lamina.language.CheckpointError, match="no chat template"):
        lamina.language.load(folder).prompt([])


@pytest.mark.parametrize(
    "more, told",
    [(["--temperature", "-1"], "generate(temperature)"), (["--context", "900"], "from 2 to 600 tokens")],
)
def test_refusals_are_a_line_and_a_status(folder, more, told, capsys):
    assert main(["chat", str(folder), "--prompt", "hi", *more]) == 1
    assert told in capsys.readouterr().err
    assert main(["embed", str(folder), "hi"]) == 1
    assert "makes no vectors" in capsys.readouterr().err


def test_bytes_that_are_no_text_are_read_as_unknown_characters(folder, capsys, monkeypatch):
    def lines():  # as where the locale is C: bytes become halves of surrogate pairs
        return io.TextIOWrapper(io.BytesIO(b"caf\xff\n"), "utf-8", errors="surrogateescape")

    monkeypatch.setattr("sys.stdin", lines())
    assert main(["chat", str(folder), "--max-tokens", "2", "--seed", "0"]) == 0
    assert main(["chat", str(folder), "--prompt", "caf\udcff"]) == 1
    assert "half a surrogate pair" in capsys.readouterr().err
