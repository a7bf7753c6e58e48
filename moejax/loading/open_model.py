"""From a path to a model that answers."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from host_tier.gguf_index import open_gguf
from moejax.engine.engine import Engine
from moejax.loading.describe import describe_model
from moejax.loading.loader import load_weights
from moejax.plan import Plan, make_plan
from moejax.run_config import RunConfig
from moejax.tokenizer import ChatTemplate, Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model in memory.

    Attributes:
      engine: runs token ids.
      tokenizer: text to ids and back; None if the file has no vocabulary.
      chat_template: conversations to text.
      plan: what runs.
    """

    engine: Engine
    tokenizer: Tokenizer | None
    chat_template: ChatTemplate | None
    plan: Plan
