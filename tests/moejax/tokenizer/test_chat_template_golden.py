"""Chat templates of real models render exactly as `transformers` renders them."""

import json
import pathlib

import pytest

from host_tier.errors import InputError
from moejax.tokenizer import ChatTemplate

FOLDER = pathlib.Path(__file__).parents[2] / "data" / "templates"
GOLDEN = json.loads((FOLDER / "golden.json").read_text())


@pytest.mark.parametrize("name", sorted(GOLDEN["rendered"]))
def test_renders_as_transformers(name):
    template = ChatTemplate(source=(FOLDER / name).read_text(), special_tokens=GOLDEN["special_tokens"])
    assert len(GOLDEN["rendered"][name]) >= 90
    for case in GOLDEN["rendered"][name]:
        variables = dict(case["variables"])
        variables["tools"] = GOLDEN["tools"] if variables.get("tools") else None
        messages = GOLDEN["conversations"][case["conversation"]]
        where = f"{case['conversation']} with {case['variables']}"
        if "error" in case:
            with pytest.raises(InputError, match="chat template failed") as caught:
                template.render(messages, **variables)
            assert " ".join(case["error"].split()) in str(caught.value), where
        else:
            assert template.render(messages, **variables) == case["text"], where


def test_every_fixture_template_has_goldens():
    assert {path.name for path in FOLDER.glob("*.jinja")} == set(GOLDEN["rendered"])
