"""Tokenizer and chat template of a GGUF file, from its metadata alone.

Files in the order of the data: `vocab` (keys, checked) with `special_tokens` (roles, end of generation);
`special_splitter` (control tokens in text); `pre_tokenizers`, `byte_alphabet` and `bpe`, or `spm`, or `charsmap` and
`unigram` (text to ids); `tokenizer` (the whole); `stream_decoder` (ids to text, one at a time); `chat_template` with
`template_sandbox` and `template_limits` (messages to text).
"""

from moejax.tokenizer.chat_template import ChatTemplate as ChatTemplate
from moejax.tokenizer.pre_tokenizers import SUPPORTED_PRE as SUPPORTED_PRE
from moejax.tokenizer.special_tokens import SpecialIds as SpecialIds
from moejax.tokenizer.stream_decoder import StreamDecoder as StreamDecoder
from moejax.tokenizer.tokenizer import Tokenizer as Tokenizer
from moejax.tokenizer.vocab import SUPPORTED_MODELS as SUPPORTED_MODELS
