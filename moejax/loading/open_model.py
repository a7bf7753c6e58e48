"""From a path to a model that answers."""

import dataclasses

from host_tier.errors import InputError
from host_tier.gguf_index import open_gguf
from moejax.engine.engine import Engine
from moejax.loading.describe import describe_model
from moejax.loading.loader import load_weights
from moejax.plan import Plan, make_plan
from moejax.progress import Progress
from moejax.run_config import RunConfig
from moejax.tokenizer import ChatTemplate, Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model in memory.

    Attributes:
      engine: runs token ids.
      tokenizer: text to ids and back; None if the file has no vocabulary.
      chat_template: conversations to text; None if the file has no vocabulary.
      plan: what runs.
    """

    engine: Engine
    tokenizer: Tokenizer | None
    chat_template: ChatTemplate | None
    plan: Plan

    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer; InputError if the file has none."""
        if self.tokenizer is None:
            raise InputError(
                f"{self.plan.config.model} has no vocabulary; give --prompt_tokens instead of text"
            )
        return self.tokenizer


def open_model(config: RunConfig, progress: Progress) -> LoadedModel:
    """Opens, checks, plans and loads a model; the file is closed again when its weights are on the device."""
    with open_gguf(config.model) as index:
        description = describe_model(index)
        plan = make_plan(config, index, description)
        tokenizer = chat_template = None
        if "tokenizer.ggml.model" in index.metadata:
            tokenizer = Tokenizer.from_metadata(index.metadata)
            chat_template = ChatTemplate.from_metadata(index.metadata)
            rows = description.config.vocab_size
            if tokenizer.vocab_size != rows:
                raise InputError(
                    f"vocabulary mismatch: the tokenizer has {tokenizer.vocab_size} tokens, the model {rows} rows"
                )
        with progress.bar("loading", description.trunk_bytes, "bytes") as advance:
            weights = load_weights(index, description, plan.holding, plan.stacks, advance)
    return LoadedModel(
        engine=Engine(plan, weights), tokenizer=tokenizer, chat_template=chat_template, plan=plan
    )
