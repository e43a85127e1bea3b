"""Functions that a model may call: told to its chat template, and read out of what it writes.

Models write calls in ways of their own.  Read are `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, as
Hermes, Qwen and others have it, and a text that is nothing but such an object, or a list of them, as Llama 3
(whose word is "parameters") and Mistral have it.  Where a call is demanded, the answer is kept to its schema.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from .refusals import Refusal

MOST_TOOLS = 128
BEGIN, END = "<tool_call>", "</tool_call>"
MISTRAL = "[TOOL_CALLS]"


class Tools:
    """The functions of a request.  Raises Refusal, when it is made, for what is none.

    given: as templates take them.  schemas: of each function's arguments, by name.  demanded: names of which
    one must be called; none where the model may also answer.  most: calls of an answer.
    """

    def __init__(self, given: Any, choice: Any, most: int = MOST_TOOLS):
        self.most = most
        self.given: list[dict] = given if isinstance(given, list) else []
        if not isinstance(given, list) or len(given) > MOST_TOOLS:
            raise Refusal(400, f"tools is a list of up to {MOST_TOOLS} functions", param="tools")
        self.schemas: dict[str, Mapping[str, Any]] = {}
        for at, tool in enumerate(given):
            function = tool.get("function") if isinstance(tool, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            schema = (function.get("parameters") or {}) if isinstance(function, dict) else None
            if not isinstance(name, str) or not isinstance(schema, dict) or tool.get("type") != "function":
                told = f"tools[{at}] is {{type: function, function: {{name, parameters}}}}"
                raise Refusal(400, told, param=f"tools[{at}]")
            self.schemas[name] = {"type": "object"} | schema
        self.demanded = self._demanded(choice)

    def _demanded(self, choice: Any) -> list[str]:
        if choice in (None, "auto"):
            return []
        if choice == "required" and self.schemas:
            return [*self.schemas]
        function = choice.get("function") if isinstance(choice, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or name not in self.schemas:
            told = (
                "tool_choice is none, auto, required, or {type: function, function: {name}} of one in tools"
            )
            raise Refusal(400, told, param="tool_choice")
        return [name]

    @property
    def schema(self) -> dict[str, Any] | None:
        """Of the call that is demanded; None where none is."""
        calls = [
            {
                "type": "object",
                "properties": {"name": {"const": name}, "arguments": self.schemas[name]},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for name in self.demanded
        ]
        return None if not calls else calls[0] if len(calls) == 1 else {"anyOf": calls}

    @staticmethod
    def called(value: Any, where: str) -> list[dict]:
        """The calls of a message, with arguments as templates take them.  Raises Refusal."""
        found = []
        for each in value or []:
            function = each.get("function") if isinstance(each, dict) else None
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                raise Refusal(
                    400, f"tool_calls of {where} are [{{id, function: {{name, arguments}}}}]", param=where
                )
            arguments = function.get("arguments") or {}
            try:
                arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
            except (ValueError, RecursionError):
                pass  # what a model wrote need not be JSON; templates take texts, too
            about = {"name": function["name"], "arguments": arguments}
            found.append({"id": str(each.get("id", ""))[:100], "type": "function", "function": about})
        return found

    def calls_in(self, text: str) -> tuple[str, list[dict]]:
        """What of a text is an answer, and the calls in it as answers have them."""
        content, found = [], []
        first, *rest = text.split(BEGIN)
        if not rest:
            calls = self._calls(first.strip().removeprefix(MISTRAL))
            return ("", calls[: self.most]) if calls else (text, [])
        content.append(first)
        for part in rest:
            inner, ended, after = part.partition(END)
            calls = self._calls(inner)
            found += calls
            content.append(after if calls else f"{BEGIN}{inner}{ended}{after}")
        return "".join(content).strip() if found else text, found[: self.most]

    def _calls(self, text: str) -> list[dict]:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return []
        found = []
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, dict) or each.get("name") not in self.schemas:
                return []
            arguments = each.get("arguments", each.get("parameters", {}))
            written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            about = {"name": each["name"], "arguments": written}
            found.append({"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": about})
        return found


class Listener:
    """Passes an answer on as it comes, up to where a call may begin; `rest` tells what that was."""

    def __init__(self, tools: Tools):
        self.tools, self._held, self._calls, self._passed = tools, "", False, False

    def told(self, piece: str) -> str:
        """What can be passed on now."""
        self._held += piece
        begin = self._held.lstrip()[:1]
        if not self._passed and (not begin or begin in "{["):  # nothing but a call, it may be
            self._calls = bool(begin)
        if self._calls or not begin:
            return ""
        at = self._held.find(BEGIN)
        if at < 0:
            lengths = range(min(len(BEGIN) - 1, len(self._held)), 0, -1)
            at = len(self._held) - next((n for n in lengths if self._held.endswith(BEGIN[:n])), 0)
        else:
            self._calls = True
        passed, self._held = self._held[:at], self._held[at:]
        self._passed = self._passed or bool(passed)
        return passed

    def rest(self) -> tuple[str, list[dict]]:
        """What was not passed on: the end of the answer, and calls."""
        return self.tools.calls_in(self._held)
