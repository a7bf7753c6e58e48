import gguf
import ml_dtypes
import numpy as np
import pytest
from raw_gguf import BF16, F16, F32, Q4_0, Q4_K, Q8_0, gguf_bytes, u32

from host_tier.errors import InputError
from host_tier.gguf_index import open_gguf


def refusal(tmp_path, tensors, data=b"", **options) -> str:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes([], tensors, data, **options))
    with pytest.raises(InputError) as caught:
        open_gguf(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        (("t", [], F32, 0), "tensor 't' has 0 dimensions"),
        (("t", [1, 1, 1, 1, 4], F32, 0), "tensor 't' has 5 dimensions (1 to 4 are possible)"),
        (("t", [0], F32, 0), "a dimension is zero or negative"),
        (("t", [4, 0], F32, 0), "a dimension is zero or negative"),
        (("t", [2**64 - 4], F32, 0), "a dimension is zero or negative"),
        (("t", [2**32, 2**31], F32, 0), "more than 2^63 elements"),
        (("t", [2**62, 2**62, 2**62, 2**62], F32, 0), "more than 2^63 elements"),
        (("t", [33], Q4_0, 0), "tensor 't' is Q4_0 but its rows of 33 elements are not a multiple of 32"),
        (("t", [32, 8], Q4_K, 0), "rows of 32 elements are not a multiple of 256"),
        (("t", [4], 31, 0), "tensor 't' has type number 31"),
        (("t", [4], 4_000_000_000, 0), "tensor 't' has type number 4000000000"),
        (("t", [4], F32, 16), "starts at the misaligned offset 16 (not a multiple of 32)"),
        (("t", [4], F32, 2**64 - 32), "truncated: the file has"),
        (("two\nlines", [4], 31, 0), "tensor 'two\\nlines'"),
        ((b"\xff", [4], F32, 0), "name of tensor 0 is not valid UTF-8"),
    ],
)
def test_bad_tensor(tmp_path, tensor, problem):
    assert problem in refusal(tmp_path, [tensor], bytes(64))


def test_every_type_of_the_library_is_known(tmp_path):
    path = tmp_path / "model.gguf"
    for quant_type, (block_elements, block_bytes) in gguf.GGML_QUANT_SIZES.items():
        path.write_bytes(
            gguf_bytes([], [("t", [2 * block_elements, 3], quant_type, 0)], bytes(6 * block_bytes))
        )
        with open_gguf(path) as index:
            info, data = index.tensors["t"], index.tensor_data("t")
        assert info.quant_type is quant_type
        assert info.shape == (3, 2 * block_elements)
        assert info.num_bytes == data.nbytes == 6 * block_bytes
        assert data.shape[0] == 3


def test_truncated_data_names_both_sizes(tmp_path):
    data = bytes(4 * 64)
    whole = gguf_bytes([], [("first", [32], F32, 0), ("second", [32], F32, 128)], data)
    for missing in (1, 127, 128, 200):
        path = tmp_path / "model.gguf"
        path.write_bytes(whole[: len(whole) - missing])
        with pytest.raises(InputError) as caught:
            open_gguf(path)
        cut = "second" if missing <= 128 else "first"
        assert f"has {len(whole) - missing:,} bytes but needs {len(whole):,} (tensor '{cut}'" in str(
            caught.value
        )


def test_overlapping_tensors(tmp_path):
    tensors = [("a", [32], F32, 0), ("b", [8], F32, 96)]
    assert "tensors 'a' and 'b' overlap" in refusal(tmp_path, tensors, bytes(256))
    tensors = [("b", [8], F32, 64), ("a", [8], F32, 64)]
    assert "overlap" in refusal(tmp_path, tensors, bytes(256))


def test_tensor_listed_twice(tmp_path):
    tensors = [("a", [8], F32, 0), ("a", [8], F32, 32)]
    assert "tensor 'a' is listed twice" in refusal(tmp_path, tensors, bytes(64))


def test_file_order_and_gaps_are_free(tmp_path):
    path = tmp_path / "model.gguf"
    values = np.arange(64, dtype=np.float32)
    path.write_bytes(gguf_bytes([], [("late", [8], F32, 192), ("early", [8], F32, 32)], values.tobytes()))
    with open_gguf(path) as index:
        assert list(index.tensors) == ["late", "early"]
        np.testing.assert_array_equal(index.tensor_data("late"), values[48:56])
        np.testing.assert_array_equal(index.tensor_data("early"), values[8:16])


def test_bytes_after_the_last_tensor_are_ignored_unless_they_are_a_gguf(tmp_path):
    whole = gguf_bytes([], [("a", [8], F32, 0)], bytes(32))
    path = tmp_path / "model.gguf"
    path.write_bytes(whole + b"signature")
    with open_gguf(path) as index:
        assert index.total_bytes == 32
    path.write_bytes(whole + whole)
    with pytest.raises(InputError, match="joined with cat"):
        open_gguf(path)


@pytest.mark.parametrize("padding", [0, 12])
def test_joined_file_after_an_unaligned_end(tmp_path, padding):
    first = gguf_bytes([], [("a", [5], F32, 0)], bytes(20 + padding))
    assert "joined with cat" in refusal(tmp_path, [("a", [5], F32, 0)], bytes(20 + padding) + first)


def test_view_types(tmp_path):
    path = tmp_path / "model.gguf"
    tensors = [
        ("f32", [4, 2], F32, 0),
        ("f16", [4, 2], F16, 32),
        ("bf16", [4, 2], BF16, 64),
        ("q8_0", [64, 3, 2], Q8_0, 96),
    ]
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    blocks = np.arange(2 * 3 * 68, dtype=np.uint64).astype(np.uint8).reshape(2, 3, 68)
    data = b"".join(
        part.tobytes().ljust(32, b"\0")
        for part in (values, values.astype(np.float16), values.astype(ml_dtypes.bfloat16), blocks)
    )
    path.write_bytes(gguf_bytes([], tensors, data))
    with open_gguf(path) as index:
        for name, dtype in (("f32", np.float32), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
            view = index.tensor_data(name)
            assert view.dtype == dtype
            np.testing.assert_array_equal(view.astype(np.float32), values)
            assert not view.flags.writeable
            del view
        quantized = index.tensor_data("q8_0")
        assert index.tensors["q8_0"].shape == (2, 3, 64)
        assert quantized.dtype == np.uint8
        np.testing.assert_array_equal(quantized, blocks)


def test_misalignment_is_measured_by_the_files_own_alignment(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(
        gguf_bytes([("general.alignment", u32(64))], [("t", [4], F32, 32)], bytes(96), alignment=64)
    )
    with pytest.raises(InputError, match="not a multiple of 64"):
        open_gguf(path)
