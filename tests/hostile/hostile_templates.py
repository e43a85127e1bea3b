"""Chat templates: those that models have, changed, and programs put together to take much."""

from __future__ import annotations

import random

import mutations
from driver import Kind, kind

import lamina

MOST = 1 << 29  # bytes that a rendering of a few kilobytes may take
LLAMA = (
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set intro = '<<SYS>>\\n' + "
    "messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}{% else %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% set c = (intro or '') + m['content'] %}"
    "{{ bos_token + '[INST] ' + c.strip() + ' [/INST]' }}{% endfor %}"
)
TOOLS = (
    "{%- set ns = namespace(multi=true, last=messages|length - 1) %}{%- for message in messages[::-1] %}"
    "{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi and message.role == 'user' and not"
    "(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}"
    "{%- set ns.multi = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}"
    "{% macro say(x, function) %}"
    "<{{ x ~ '|' ~ function }}>{% endmacro %}{%- for message in messages %}{% if message.content is string %}"
    "{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}{% else %}{% set content = '' %}"
    "{% endif %}{{ say(content, function=loop.last) }}"
    "{{ {'a': [message, 1.5], 'b': none} | tojson(indent=2) }}"
    "{{ [3, 1, 2] | sort | join(', ') }}{{ messages | map(attribute='role') | unique | list }}{%- endfor %}"
    "{% set t %}{% for k, v in messages[0].items() %}{{ k | upper }}{% endfor %}{% endset %}{{ t | trim }}"
)
MARKS = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SEEDS = (MARKS, LLAMA, TOOLS)
TOKENS = (
    "{%", "%}", "{{", "}}", "for", "in", "if", "else", "endif", "endfor", "set", "endset", "macro",
    "endmacro",
    "call", "endcall", "filter", "block", "recursive", "loop", "not", "is", "~", "|", "(", ")", "[", "]", ":",
    "messages", "self", "caller()", "namespace", "1", "''", ".", "*", "**", "%", "//", "autoescape", "import",
    "extends", "include", "with", "continue", "break", "{#", "{% raw %}", "-%}", "__class__", "varargs",
)  # fmt: skip
# What grows, what is long, and what looks at it.  n.a, n.b: values; n.s: a text; n.t: a tuple.
START = "{% set n = namespace(a=['x'], b=['x'], s='abcd', t=('x',), i=3, d={'k': 1}) %}"
GROWTH = (
    "n.a = [n.a, n.a]", "n.b = [n.b, n.b]", "n.a = n.a + n.a", "n.s = n.s ~ n.s", "n.s = n.s + n.s",
    "n.t = (n.t, n.t)", "n.t = (n.t,)", "n.a = [n.a]", "n.d = {'k': n.d, 'l': n.d}", "n.i = n.i * n.i",
    "n.i = n.i - (0 - n.i)", "n.s = n.s.replace('a', 'aa')", "n.s = n.s | replace('a', 'aaa')", "n.n = n",
    "n.a = [n.a, n.b]", "n.d = namespace(x=n.d, y=n.d)", "n.s = n.s | string | upper",
    "n.s = n.s.join('abc')",
    "n.a = n.a | list + n.b", "n.s = n.a | join(n.s)", "n.a = (n.s | list)", "n.i = (n.s | int(7, 16))",
    "n.s = n.s.title()", "n.a = n.s.split('a')", "n.a = n.a | map('string') | list",
    "n.a = dict(n.d).values() | list",
)  # fmt: skip
LOOKS = (
    "n.a", "n.s", "n.t", "n.d", "n.i", "n.a == n.b", "n.a in [n.b]", "n.a is eq(n.b)", "{n.t: 1} | length",
    "n.a | tojson(indent=8) | length", "n.d | tojson | length", "n.a | string | length",
    "n.a ~ n.b", "n.a | upper",
    "[n.a, n.b] | sort | length", "[n.t] | unique | list | length", "n.a | sum(start=[]) | length",
    "n.i | round(n.i)", "n.i // 7", "n.i is divisibleby(7)", "n.s.strip(n.s ~ 'x') | length",
    "n.s.rfind('b' + n.s)",
    "n.s | trim(n.s) | length", "n.s.find(n.s ~ 'x')", "n.s.count('a')", "[n.a].index(n.b)",
    "{}.get(n.t)", "{}[n.t]",
    "raise_exception(n.a)", "'{:999999999}'.format(n.i)", "'%999999999d' % n.i", "n.s.center(n.i)",
    "strftime_now(n.s)",
    "range(99999) | map('replace', '', n.s) | list | length", "range(99999) | list | length",
    "n.a | groupby(0) | list",
    "n.d | dictsort | length", "n.a | min", "n.s[1:] | length", "n.a[::-1] | length", "n.s | list | length",
    "n.a | map('upper') | list | length", "[n.a] | select('in', [n.b]) | list", "n.d.items() | list | length",
    "n.s * 9999", "9 ** n.i", "n.a | first", "n.s | e | length", "n.s | int(1, 36)", "n | string",
    "loop | string",
)  # fmt: skip
ROUNDS = ("3", "25", "60", "2000", "9999", "49999", "99999")


def _program(rng: random.Random) -> str:
    """Values that grow in loops, and what looks at them, once or in loops, in blocks and macros."""
    text = START
    for _ in range(rng.choice((1, 1, 2, 3))):
        steps = "".join(f"{{% set {rng.choice(GROWTH)} %}}" for _ in range(rng.choice((1, 1, 2))))
        text += f"{{% for i in range({rng.choice(ROUNDS[:4])}) %}}{steps}{{% endfor %}}"
    for _ in range(rng.choice((1, 2, 3))):
        look = f"{{{{ {rng.choice(LOOKS)} }}}}"
        way = rng.randrange(8)
        if way == 0:
            look = f"{{% set x = {rng.choice(LOOKS)} %}}{{% if x == {rng.choice(LOOKS)} %}}x{{% endif %}}"
        elif way == 1:
            look = f"{{% set x %}}{look}{'y' * rng.choice((1, 5000))}{{% endset %}}{{{{ x | length }}}}"
        elif way == 2:
            look = f"{{% macro f(function) %}}{look}{{% endmacro %}}{{{{ f(function=1) ~ f(2) }}}}"
        if way in (1, 3, 4):
            rounds = rng.choice(ROUNDS if rng.random() < 0.1 else ROUNDS[:4])
            look = f"{{% for i in range({rounds}) %}}{look}{{% endfor %}}"
        elif way == 5:
            inner = "{% if loop.depth < 3 %}{{ loop(range(9999)) }}{% endif %}"
            look = f"{{% for i in range(99) recursive %}}{look}{inner}{{% endfor %}}"
        text += look
    return text


def _changed(rng: random.Random) -> str:
    """A template of a model's with its bytes damaged, or words of the language put in."""
    source = rng.choice(SEEDS)
    if rng.random() < 0.5:
        return mutations.damaged(rng, source.encode(), [s.encode() for s in SEEDS]).decode(errors="replace")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(source) + 1)
        words = " ".join(rng.choice((*TOKENS, *LOOKS)) for _ in range(rng.choice((1, 2, 3))))
        source = source[:at] + words * rng.choice((1, 1, 1, 400)) + source[at + rng.choice((0, 0, 3, 9)) :]
    return source


@kind("chat-template", "jinja2", "lamina.language")
def chat_templates() -> Kind:
    """A template writes a prompt or is refused, whatever it is, within a bounded memory and time."""
    from lamina.language.chat_template import MOST_TEXT, ChatTemplate

    talk = [{"role": "user", "content": "hi <b>"}, {"role": "assistant", "content": "Hello!"}]

    def make(rng: random.Random) -> str:
        return _program(rng) if rng.random() < 0.6 else _changed(rng)

    def check(source: str) -> str:
        written = ChatTemplate(source, {"bos_token": "<s>"}).render(talk)
        assert len(written) <= MOST_TEXT
        return "written"

    return Kind(make=make, check=check, refusals=(lamina.LaminaError,), batch=500, memory=MOST, share=20)
