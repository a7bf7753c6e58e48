"""Chat templates: variables, defaults, errors in one line, limits."""

import datetime
import time

import pytest

from host_tier.errors import InputError
from moejax.tokenizer import ChatTemplate

USER = [{"role": "user", "content": "hi"}]


def render(source, messages=(), **variables):
    return ChatTemplate(source=source, max_seconds=3.0).render(messages, **variables)


def refuse(source, match, messages=(), **variables):
    start = time.monotonic()
    with pytest.raises(InputError, match=match) as caught:
        render(source, messages, **variables)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 15.0


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{{ 'a' ~ 1 ~ none ~ 'b' }}", "a1Noneb"),
        ("{{ 3 * 4 }}{{ 2 ** 5 }}{{ [1] + [2] }}{{ 'n=%d' % 3 }}{{ 'x' * 3 }}", "1232[1, 2]n=3xxx"),
        ("{{ {'é<': [1, none, true]} | tojson }}", '{"é<": [1, null, true]}'),
        ("{{ {'b': 1, 'a': 'é'} | tojson(indent=1, sort_keys=true, ensure_ascii=true) }}", None),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        (
            "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}"
            "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        ("{% generation %}x{{ 1 }}{% endgeneration %}", "x1"),
        (
            "{% set n = namespace(a=1) %}{% for i in [1, 2] %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }}",
            "4",
        ),
        ("{{ dict(a=1) | tojson }}{{ dict.fromkeys('ab', 0) | tojson }}", '{"a": 1}{"a": 0, "b": 0}'),
        ("{% macro m(x) %}[{{ x }}{{ caller() }}]{% endmacro %}{% call m(1) %}b{% endcall %}", "[1b]"),
        ("{% for x in [[1, [2]], [3]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "123"),
        ("{% for k, v in {'a': 1}|items if v %}{{ k }}{{ v }}{% else %}none{% endfor %}", "a1"),
        (
            "{{ [1, 'b'] | join('-') }}{{ 'aXa' | replace('X', 'yy') }}{{ 'a\nb' | indent(2) }}",
            "1-bayyaa\n  b",
        ),
        (
            "{{ 'x'.center(5) }}|{{ ','.join(['a', 'b']) }}|{{ 'abc'.replace('b', '') }}|{{ '{:>3}'.format(1) }}",
            None,
        ),
        (
            "{{ 'id 123456: %s %5.1f%%' % ('x', 2.25) }}{{ '{{12345}}: {}'.format(1) }}",
            "id 123456: x   2.2%{12345}: 1",
        ),
        ("{{ 'a b c' | truncate(99999) }}{{ '%-5s|' | format('x') }}", "a b cx    |"),
        ("{{ bos_token }}{{ missing }}{{ missing is defined }}{{ tools is none }}", "FalseTrue"),
        ("{% autoescape true %}{{ '<' ~ 'b' }}{% endautoescape %}{{ '<' }}", "&lt;b<"),
    ],
)
def test_language(source, text):
    expected = {
        "{{ {'b'": '{\n "a": "\\u00e9",\n "b": 1\n}',
        "{{ 'x'.": "  x  |a,b|ac|  1",
    }
    assert render(source) == (expected[source[:7]] if text is None else text)


def test_variables():
    source = "{{ add_generation_prompt }} {{ enable_thinking }} {{ reasoning_effort }} {{ tools[0].name }} {{ eos_token }}"
    template = ChatTemplate(source=source, special_tokens={"eos_token": "</s>"})
    text = template.render(USER, tools=[{"name": "f"}], enable_thinking=False, reasoning_effort="low")
    assert text == "True False low f </s>"


def test_messages_lose_none_values_and_gain_reasoning():
    source = "{% for m in messages %}{{ m | tojson }}{% endfor %}"
    assert render(source, [{"role": "user", "content": None}]) == '{"role": "user"}'
    assert (
        render(source, [{"reasoning": "r"}])
        == '{"thinking": "r", "reasoning": "r", "reasoning_content": "r"}'
    )


def test_time():
    template = ChatTemplate(
        source="{{ strftime_now('%d %b %Y') }}", clock=lambda: datetime.datetime(2024, 2, 3)
    )
    assert template.render([]) == "03 Feb 2024"


def test_default_is_chatml():
    template = ChatTemplate.from_metadata({})
    assert template.is_default
    messages = [{"role": "system", "content": "S"}, *USER]
    assert template.render(messages) == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template.render(USER, add_generation_prompt=False) == "<|im_start|>user\nhi<|im_end|>\n"


def test_from_metadata():
    metadata = {
        "tokenizer.chat_template": "{{ bos_token }}A{{ eos_token }}{{ pad_token is defined }}",
        "tokenizer.chat_template.tool_use": "T",
        "tokenizer.ggml.tokens": ["<s>", "</s>"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.padding_token_id": 0xFFFFFFFF,
    }
    template = ChatTemplate.from_metadata(metadata)
    assert not template.is_default
    assert template.render(USER) == "<s>A</s>False"
    assert template.render(USER, tools=[]) == "T"
    assert ChatTemplate.from_metadata(metadata, override="{{ eos_token }}!").render(USER, tools=[]) == "</s>!"
    assert ChatTemplate.from_metadata(metadata, override="chatml").render([]) == "<|im_start|>assistant\n"
    with pytest.raises(InputError, match=r"tokenizer.chat_template must be a string, found list"):
        ChatTemplate.from_metadata({"tokenizer.chat_template": ["x"]})


def test_errors_are_one_line():
    refuse("{{ raise_exception('bad\nroles') }}", r"^the chat template failed: bad roles$")
    refuse("{{ missing.attribute }}", "'missing' is undefined")
    refuse("a\n{% if %}", "has an error in line 2: Expected an expression")
    refuse("{{ 1 / 0 }}", "failed: ZeroDivisionError: division by zero")
    refuse("{{ messages[0] + 1 }}", "failed: TypeError", USER)
    refuse("{% include 'x' %}", "failed")
    refuse("x", "a chat message must be an object, found str", ["hi"])


def test_errors_wait_for_use():
    template = ChatTemplate.from_metadata({"tokenizer.chat_template": "{% if %}"})
    with pytest.raises(InputError, match="has an error in line 1"):
        template.check()
    ChatTemplate(source="{{ x }}", tool_use_source="y").check()


@pytest.mark.parametrize(
    "source",
    [
        "{{ cycler.__init__.__globals__ }}",
        "{{ (1).__class__.__base__.__subclasses__() }}",
        "{{ namespace(__x=1) }}",
        "{% set n = namespace() %}{% set n._a = 1 %}",
        "{{ messages.append(1) }}",
        "{{ lipsum() }}",
    ],
)
def test_sandbox(source):
    refuse(source, "the chat template failed", [{}])


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "runs longer than 3 s",
        ),
        (
            "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
            "longer than 3 s",
        ),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% for i in range(99999) %}" + "x" * 1000 + "{% endfor %}", "writes more than 67108864 characters"),
        ("{% set x = 'x' * 10**6 %}{% for i in range(99) %}{{ x }}{% endfor %}", "writes more than"),
        (
            "{% set x = 'x' * 10**6 %}{% set y %}{% for i in range(99) %}{{ x }}{% endfor %}{% endset %}",
            "writes more",
        ),
        ("{{ 'x' * 10**9 }}", "longer than 67108864"),
        ("{{ 10**9 * [1] }}", "longer than 67108864"),
        ("{{ 2 ** 99999 }}", "a number is too large"),
        (
            "{% set n = namespace(x=3) %}{% for i in range(40) %}{% set n.x = n.x * n.x %}{% endfor %}",
            "number is too",
        ),
        (
            "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "text or list",
        ),
        (
            "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
            "text or list",
        ),
        (
            "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
            "too large to be written",
        ),
        (
            "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
            "{{ n.x | tojson }}",
            "too large to be written",
        ),
        ("{{ 'x'.center(10**9) }}", "width or count is larger than 10000"),
        ("{{ 'x' | center(10**9) }}", "width or count"),
        ("{{ 'x' | indent(width=10**9, first=true) }}", "width or count"),
        ("{{ [1] | batch(10**9, 0) | list }}", "width or count"),
        ("{{ [1] | tojson(indent=10**9) }}", "width or count"),
        ("{{ '%1000000000d' % 1 }}", "format .* is too wide"),
        ("{{ '%*d' % (10**9, 1) }}", "format .* is too wide"),
        ("{{ '{:1000000000}'.format(1) }}", "format .* is too wide"),
        ("{{ '%99999d' | format(1) }}", "format .* is too wide"),
        ("{{ '%.99999f' % 1 }}", "format .* is too wide"),
        ("{{ '{:{}}'.format(1, 10**9) }}", "format .* is too wide"),
        ("{% set x = 'x' * 10**6 %}{{ ('{0}' * 99).format(x) }}", "text or list is longer"),
        ("{% set x = 'x' * 10**6 %}{{ ('%(a)s' * 99) % {'a': x} }}", "text or list is longer"),
        ("{% set x = 'x' * 10**5 %}{{ x | replace('x', x) }}", "text or list is longer"),
        ("{% set x = 'x' * 10**5 %}{{ x.replace('', x) }}", "text or list is longer"),
        ("{% set x = 'x' * 10**5 %}{{ ([x] * 10**4) | join }}", "too large to be written"),
        ("{% set x = 'x' * 10**5 %}{{ x.join(['a'] * 10**4) }}", "text or list is longer"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "cannot be compiled"),
        ("{% if true %}" * 2000 + "{% endif %}" * 2000, "cannot be compiled"),
        ("x" * (2**20 + 1), "has 1048577 characters; at most 1048576 work"),
    ],
)
def test_limits(source, match):
    refuse(source, match)


def test_long_conversations_are_well_within_limits():
    source = (
        "{% for m in messages[::-1] %}{% set x = messages | length - loop.index0 %}{% endfor %}"
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content | trim ~ '<|im_end|>' }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "word " * 200}] * 2000
    assert len(ChatTemplate(source=source).render(messages)) == 2000 * (
        len("<|im_start|>user\n<|im_end|>") + 999
    )
