"""`python -m lamina chat folder/`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..ir.errors import LaminaError
from .model_folders import ACTIVATIONS, WEIGHTS, load
from .text_model import LanguageModel
from .untrusted import CheckpointError, replace_what_is_no_text

HELP = "/reset begins anew, /quit ends, Ctrl-C stops an answer"


class Conversation:
    """Turns with a model, whose oldest are forgotten where the context is full; the system's stays.

    A model without a chat template goes on from what was written, its answers among it.
    """

    def __init__(self, model: LanguageModel, system: str | None, most: int, options: Mapping[str, Any]):
        self.model, self.most, self.options = model, most, options
        self.system = [{"role": "system", "content": system}] if system else []
        self.turns: list[dict[str, str]] = []
        self.cache = model.cache()

    def reset(self) -> None:
        """Forget all turns."""
        self.turns.clear()

    def answer(self, text: str) -> Iterator[str]:
        """The pieces of the answer to a message, which is then part of the conversation as far as it came."""
        self.turns.append({"role": "user", "content": text})
        told: list[str] = []
        try:
            room = min(self.most, self.model.context // 2)
            prompt = self.prompt(room)
            for piece in self.model.generate(prompt, max_tokens=room, cache=self.cache, **self.options):
                told.append(piece)
                yield piece
        finally:
            if told:
                self.turns.append({"role": "assistant", "content": "".join(told)})
            else:
                self.turns.pop()

    def prompt(self, room: int) -> list[int]:
        """The tokens of the conversation, the oldest turns left out so that an answer has room.

        Raises CheckpointError where the last message alone leaves none.
        """
        while True:
            tokens = self._tokens()
            if len(tokens) + room <= self.model.context:
                return tokens
            if len(self.turns) == 1:
                raise CheckpointError(
                    f"the message takes {len(tokens)} tokens, and the context has {self.model.context}",
                    f"of which {room} are for the answer (--max-tokens)",
                )
            del self.turns[: 2 if self.turns[1]["role"] == "assistant" else 1]

    def _tokens(self) -> list[int]:
        messages = [*self.system, *self.turns]
        if self.model.template is None:
            return self.model.tokens("\n".join(message["content"] for message in messages))
        return self.model.tokens(self.model.prompt(messages))


def main(args: Sequence[str]) -> int:
    """Talk with a model as the arguments say.  Returns the exit status."""
    parser = argparse.ArgumentParser("lamina chat", description=f"Talk with a language model: {HELP}.")
    parser.add_argument("model", help="a folder with config.json and safetensors, or a .gguf file")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the conversation")
    parser.add_argument(
        "--prompt", metavar="TEXT", help="one message: its answer is printed, and that is all"
    )
    parser.add_argument("--max-tokens", type=int, default=512, metavar="N", help="of an answer (512)")
    parser.add_argument(
        "--context", type=int, metavar="N", help="tokens of the conversation (the model's own)"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="of weights (as the file has them)")
    parser.add_argument("--weights", choices=WEIGHTS, help="round weights of layers to so many bits")
    parser.add_argument(
        "--activations", choices=ACTIVATIONS, help="round what such weights are multiplied with, too"
    )
    parser.add_argument("--temperature", type=float, default=0.7, metavar="T", help="0: the likeliest (0.7)")
    parser.add_argument("--top-p", type=float, default=0.95, metavar="P", help="(0.95)")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="0: all (0)")
    parser.add_argument("--min-p", type=float, default=0.0, metavar="P", help="(0)")
    parser.add_argument("--repetition-penalty", type=float, default=1.0, metavar="R", help="1: none (1)")
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="a text that ends answers"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="equal seeds give equal answers")
    options = parser.parse_args(args)
    try:
        model = load(options.model, options.dtype, options.context, options.weights, options.activations)
        if not isinstance(model, LanguageModel):
            raise CheckpointError(
                f"{options.model} makes vectors of texts, and no answers", "python -m lamina embed"
            )
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop", "seed")
        sampling = {name: getattr(options, name) for name in names}
        model.generate([0], max_tokens=0, **sampling)  # refuses what is out of range, before anyone types
        conversation = Conversation(model, options.system, options.max_tokens, sampling)
        if options.prompt is not None:
            return _tell(conversation, options.prompt)
        return _talk(conversation, model)
    except (LaminaError, OSError) as error:
        print(f"lamina chat: {error}", file=sys.stderr)
        return 1


def _talk(conversation: Conversation, model: LanguageModel) -> int:
    """Read messages until there are no more.  Returns the exit status of the last answer."""
    person, status = sys.stdin.isatty(), 0
    replace_what_is_no_text(sys.stdin)
    if person:
        continues = "" if model.template else "; it has no chat template, and continues what you write"
        print(f"{model.name}, context {model.context}{continues}\n{HELP}")
    while True:
        try:
            line = input("> " if person else "")
        except EOFError:
            return status
        except KeyboardInterrupt:
            print()
            return 130
        match line.strip():
            case "":
                continue
            case "/quit" | "/exit":
                return status
            case "/reset":
                conversation.reset()
            case message:
                try:
                    status = _tell(conversation, message)
                except LaminaError as error:
                    print(f"lamina chat: {error}", file=sys.stderr)
                    status = 1


def _tell(conversation: Conversation, message: str) -> int:
    """Print an answer as it comes; Ctrl-C stops it.  Returns the exit status."""
    pieces = conversation.answer(message)
    try:
        for piece in pieces:
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print(" …")
        return 130
    finally:
        pieces.close()  # type: ignore[attr-defined]
    print()
    return 0
