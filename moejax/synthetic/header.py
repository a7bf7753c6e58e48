"""From a model's record to the metadata of its file: the inverse of what the architectures read."""

import gguf

from moejax.config import Mixer, ModelConfig
from moejax.synthetic.mixes import Mix
from moejax.synthetic.vocabulary import CHAT_TEMPLATE, make_vocabulary


def _rope_sections(num_frequencies: int) -> list[int]:
    """Frequencies for time, height and width; text uses one position for all of them."""
    time = -(-num_frequencies // 3)
    height = -(-(num_frequencies - time) // 2)
    return [time, height, num_frequencies - time - height, 0]


def _add_attention(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    attention = config.attention
    writer.add_head_count(attention.num_heads)
    writer.add_head_count_kv(attention.num_kv_heads)
    writer.add_key_length(attention.head_dim)
    writer.add_value_length(attention.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(attention.rope.base)
    writer.add_rope_dimension_count(attention.rope.dims)


def _add_experts(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    moe = config.moe
    assert moe is not None
    writer.add_expert_count(moe.num_experts)
    writer.add_expert_used_count(moe.num_used)
    writer.add_expert_feed_forward_length(moe.ffn_size)
    if moe.shared_ffn_size:
        writer.add_expert_shared_feed_forward_length(moe.shared_ffn_size)


def _add_delta_net(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    delta_net = config.delta_net
    assert delta_net is not None
    writer.add_ssm_conv_kernel(delta_net.conv_kernel)
    writer.add_ssm_state_size(delta_net.head_dim)
    writer.add_ssm_group_count(delta_net.num_k_heads)
    writer.add_ssm_time_step_rank(delta_net.num_v_heads)
    writer.add_ssm_inner_size(delta_net.num_v_heads * delta_net.head_dim)
    recurrent = [kind.mixer is Mixer.DELTA_NET for kind in config.layers]
    recurrent += [False] * config.num_mtp_layers
    writer.add_array(f"{config.arch}.attention.recurrent_layers", recurrent)
    writer.add_uint32(f"{config.arch}.full_attention_interval", 4)
    writer.add_rope_dimension_sections(_rope_sections(config.attention.rope.dims // 2))


def _add_tokenizer(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    vocabulary = make_vocabulary(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35" if config.delta_net is not None else "qwen2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_eos_token_id(vocabulary.end_of_turn)
    writer.add_pad_token_id(vocabulary.end_of_text)
    writer.add_bos_token_id(vocabulary.end_of_text)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def add_metadata(
    writer: gguf.GGUFWriter, config: ModelConfig, mix: Mix, *, seed: int, size_label: str
) -> None:
    """Adds every key of the file but the tensors; an empty `size_label` adds none."""
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(config.name)
    writer.add_description(f"random weights, seed {seed}: for measuring speed")
    writer.add_size_label(size_label)
    writer.add_file_type(int(mix.file_type))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(len(config.layers) + config.num_mtp_layers)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.hidden_size)
    writer.add_vocab_size(config.vocab_size)
    if config.ffn_size:
        writer.add_feed_forward_length(config.ffn_size)
    _add_attention(writer, config)
    if config.moe is not None:
        _add_experts(writer, config)
    if config.delta_net is not None:
        _add_delta_net(writer, config)
    if config.num_mtp_layers:
        writer.add_nextn_predict_layers(config.num_mtp_layers)
    _add_tokenizer(writer, config)
