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


BOMBS = {
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
