"""Chat templates: what they write, and programs that take too much."""

import pytest
import tiny_checkpoints

from lamina.language import CheckpointError
from lamina.language.chat_template import ChatTemplate

pytest.importorskip("jinja2", reason="the extra language is not installed")
HI = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " hi "}]


def rendered(source, messages=HI, **special):
    return ChatTemplate(source, special).render(messages)


def test_a_conversation_is_written_as_models_know_it():
    assert rendered(tiny_checkpoints.TEMPLATE) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\n"
    )
    llama2 = (
        "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}"
        "{% set intro = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}{% endif %}"
        "{% for m in rest %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "{% if loop.index0 == 0 %}{% set c = intro + m['content'] %}"
        "{% else %}{% set c = m['content'] %}{% endif %}"
        "{{ bos_token + '[INST] ' + c.strip() + ' [/INST]' }}{% endfor %}"
    )
    assert rendered(llama2, bos_token="<s>") == "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n hi [/INST]"
    with pytest.raises(CheckpointError, match="refuses the conversation: roles must alternate"):
        rendered(llama2, [HI[0], {"role": "assistant", "content": "x"}], bos_token="")


def test_what_templates_use_is_there():
    source = (
        "{%- set ns = namespace(found=false, n=0) -%}{%- for m in messages -%}{%- set ns.n = ns.n + 1 -%}"
        "{%- if m.role == 'system' -%}{%- set ns.found = true -%}{%- continue -%}{%- endif -%}"
        "{{ m.content | trim | upper }}{{ m | tojson }}{{ loop.last }}{%- endfor -%}"
        "{{ ns.found }}{{ ns.n ~ '/' ~ messages|length }}{{ 'a,b'.split(',')[-1] }}"
        "{{ messages | map(attribute='role') | join(', ') }}{{ strftime_now('%Y')|length }}"
        "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('é') }}{{ 'xyx'.replace('x', '') }}"
    )
    assert rendered(source) == ('HI{"role": "user", "content": " hi "}TrueTrue2/2bsystem, user4<é>y')


def growing(start, step):
    """A text or a list that grows sixty times."""
    set_up = f"{{% set n = namespace(s={start}) %}}"
    return f"{set_up}{{% for i in range(60) %}}{{% set n.s = {step} %}}{{% endfor %}}"


def nested(start, look):
    """Lists, or tuples, inside of lists: each holds the one before twice, sixty times."""
    a, b = ("(n.a, n.a)", "(n.b, n.b)") if start.startswith("(") else ("[n.a, n.a]", "[n.b, n.b]")
    set_up = f"{{% set n = namespace(a={start}, b={start}) %}}"
    step = f"{{% set n.a = {a} %}}{{% set n.b = {b} %}}"
    return f"{set_up}{{% for i in range(60) %}}{step}{{% endfor %}}{{{{ {look} }}}}"


def long(look, start="'a'"):
    """A text of two million letters, and what is done with it."""
    set_up = f"{{% set n = namespace(s={start}) %}}"
    return set_up + "{% for i in range(21) %}{% set n.s = n.s ~ n.s %}{% endfor %}" + look


BOMBS = {
    "nested list": nested("['x']", "n.a"),
    "nested list as text": nested("['x']", "n.a | string | length"),
    "nested list and text": nested("['x']", "n.a ~ 'x'"),
    "nested lists compared": nested("['x']", "n.a == n.b"),
    "nested lists looked for": nested("['x']", "n.a in [n.b]"),
    "nested lists as a test has it": nested("['x']", "n.a is eq(n.b)"),
    "nested lists that are chosen": nested("['x']", "[n.a] | select('eq', n.b) | list | length"),
    "nested lists counted": nested("['x']", "[n.a].count(n.b)"),
    "nested lists sorted": nested("['x']", "[n.a, n.b] | sort | length"),
    "nested list as JSON": nested("['x']", "n.a | tojson | length"),
    "nested list joined": nested("['x']", "''.join([n.a])"),
    "nested list that is told": nested("['x']", "raise_exception(n.a)"),
    "nested tuple as a key": nested("('x',)", "{n.a: 1} | length"),
    "nested tuple looked up": nested("('x',)", "{}[n.a]"),
    "nested tuple got": nested("('x',)", "{}.get(n.a)"),
    "nested tuple in a dict": nested("('x',)", "dict([(n.a, 1)]) | length"),
    "nested tuples, unique": nested("('x',)", "[n.a] | unique | list | length"),
    "namespaces": "{% set n = namespace(x=1) %}{% for i in range(60) %}"
    "{% set n.x = namespace(a=n.x, b=n.x) %}{% endfor %}{{ [n.x] == [n.x] }}{{ 9 ** 9 }}",
    "tuples inside": "{% set n = namespace(t=(1,)) %}{% for i in range(49000) %}"
    "{% set n.t = (n.t,) %}{% endfor %}"
    "{{ {n.t: 1} | length }}",
    "rounding": "{{ 5 | round(-1000000000) }}",
    "rounding in a tag": "{% autoescape 5 | round(-1000000000) %}{% endautoescape %}",
    "rounding up": "{{ 5 | round(1000000000, 'ceil') }}",
    "summing lists": "{% set n = namespace(x=['a']) %}{% for i in range(17) %}{% set n.x = n.x + n.x %}"
    "{% endfor %}{{ [" + "n.x, " * 300 + "] | sum(start=[]) | length }}",
    "many texts": long("{% set y = n.s" + " ~ n.s" * 2000 + " %}"),
    "format, unseen": "{% set x = '{:1000000000}'.format(1) %}{{ x | length }}",
    "format_map": "{% set x = '{a:1000000000}'.format_map({'a': 1}) %}{{ x | length }}",
    "finding from behind": long("{{ n.s.rfind('b' + n.s[:1000000]) }}"),
    "stripping": long("{{ n.s.strip(n.s.replace('a', '!') + 'a') | length }}"),
    "trimming": long("{{ n.s | trim(n.s.replace('a', '!') + 'a') | length }}"),
    "text in a block": "{% set x %}{% for i in range(49999) %}" + "x" * 100_000 + "{% endfor %}{% endset %}",
    "replacing in all": long("{{ range(90000) | map('replace', '', n.s) | list | length }}"),
    "often upper": long("{% for i in range(49000) %}{% set y = n.s.upper() %}{% endfor %}"),
    "often compared": long("{% for i in range(49000) %}{% if 'b' in n.s %}{% endif %}{% endfor %}"),
    "often sliced": long("{% set l = n.s[:200000] | list %}" + "{% set y = l[1:] %}" * 8000),
    "recursive loops": "{% for i in range(40000) recursive %}{% if loop.depth < 2 %}{{ loop(range(99999)) }}"
    "{% endif %}{% endfor %}",
    "division": long("{{ (n.s | int(0, 16)) // (n.s[:1000000] | int(0, 16)) is odd }}", "'ffff'"),
    "indents": "{% set n = namespace(t=[1]) %}{% for i in range(17) %}{% set n.t = n.t + n.t %}{% endfor %}"
    "{% for i in range(60) %}{% set n.t = [n.t] %}{% endfor %}{{ n.t | tojson(indent=8) | length }}",
    "a long one": "{{ x }}" * 50_000,
    "brackets": "{{ " + "[" * 20_000 + "]" * 20_000 + " }}",
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "output": "{% for a in range(9999) %}" + "x" * 1000 + "{% endfor %}",
    "times": "{{ 'x' * 10000000000 }}",
    "power": "{{ 9 ** 9 ** 9 }}",
    "format": "{{ '%1000000000d' % 1 }}",
    "format method": "{{ '{:1000000000}'.format(1) }}",
    "center": "{{ 'x'.center(1000000000) }}",
    "center filter": "{{ 'x' | center(1000000000) }}",
    "doubling": growing("'xxxxxxxx'", "n.s ~ n.s"),
    "adding": growing("'xxxxxxxx'", "n.s + n.s"),
    "lists": growing("[1]", "n.s + n.s"),
    "replacing": growing("'xx'", "n.s.replace('x', 'xxxx')"),
    "replace filter": growing("'xx'", "n.s | replace('x', 'xxxx')"),
    "joining": growing("'xxxx'", "n.s.join(n.s)"),
    "numbers": growing("99999", "n.s * n.s"),
    "recursion": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "doubling recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(40) }}",
    "attributes": "{{ messages.__class__.__mro__ }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "writing": "{{ messages.append(1) }}",
    "includes": "{% include 'x' %}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_template_can_not_take_much(name):
    with pytest.raises(CheckpointError, match="chat template"):
        rendered(BOMBS[name])


def test_arguments_have_any_name():
    source = "{% macro f(function, context) %}{{ function ~ context }}{% endmacro %}"
    assert rendered(source + "{{ f(function=1, context=2) }}") == "12"


def test_a_conversation_of_a_thousand_turns_is_no_bomb():
    turns = [
        {"role": "user", "content": "word " * 300},
        {"role": "assistant", "content": "word " * 300},
    ] * 500
    grown = "{% set n = namespace(seen=[]) %}{% for m in messages %}{% set n.seen = n.seen + [m.role] %}"
    grown += "{% if m in messages[:3] %}{{ n.seen | length }} {% endif %}{% endfor %}"
    assert rendered(grown, turns).split() == [str(n + 1) for n in range(1000)]
    assert len(rendered(tiny_checkpoints.TEMPLATE, turns)) > 1_500_000


def test_a_template_that_is_none_is_refused():
    with pytest.raises(CheckpointError, match="can't be read"):
        ChatTemplate("{% for %}", {})


def test_what_a_model_is_trained_on_is_written_as_other_parts_are():
    source = (
        "{% for m in messages %}{% generation %}\n{% set x = m.role %}{{ x }} {% endgeneration %}{% endfor %}"
        "{{ x is defined }}"
    )
    assert rendered(source) == "system user False"
    with pytest.raises(CheckpointError, match="can't be read"):
        rendered("{% generation %}")
    with pytest.raises(CheckpointError, match="more than 50000 rounds"):
        rendered("{% generation %}{% for i in range(60000) %}{% endfor %}{% endgeneration %}")


def test_json_is_written_as_templates_ask_for_it():
    given = [{"role": "user", "content": "é"}]
    assert rendered("{{ messages[0] | tojson }}", given) == '{"role": "user", "content": "é"}'
    compact = "{{ messages[0] | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}"
    assert rendered(compact, given) == '{"content":"\\u00e9","role":"user"}'
    assert rendered("{{ messages[0] | tojson(indent=2) }}", given).startswith('{\n  "role"')
