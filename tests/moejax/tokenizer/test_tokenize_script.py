"""The tokenize program, from its command line."""

import json
import subprocess
import sys

import pytest

DATA_CASES = ["Hello world", "", "a\u2028b", "<|im_end|>\n", "\ud800"]


@pytest.fixture
def run(repo_root, tmp_path, vocab_path):
    def call(*flags, content=None, model="smollm"):
        lines = tmp_path / "lines.jsonl"
        if content is not None:
            lines.write_bytes(content)
        command = [sys.executable, repo_root / "scripts" / "tokenize.py", f"--lines={lines}", *flags]
        if model:
            command.append(f"--model={vocab_path(model)}")
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)

    return call


def jsonl(texts):
    return "".join(json.dumps(text) + "\n" for text in texts).encode()


@pytest.mark.parametrize("parse_special", [True, False])
def test_prints_ids(run, real_tokenizer, parse_special):
    done = run(
        f"--parse_special={str(parse_special).lower()}", "--add_special=true", content=jsonl(DATA_CASES)
    )
    assert (done.returncode, done.stderr) == (0, "")
    tokenizer = real_tokenizer("smollm")
    expected = [tokenizer.encode(text, add_special=True, parse_special=parse_special) for text in DATA_CASES]
    assert json.loads(done.stdout) == expected
    assert done.stdout.count("\n") == 1
    assert ([2] in [ids[:1] for ids in expected]) == parse_special


def test_special_tokens_around(run):
    done = run("--add_special=true", content=b'"a"', model="llama-spm")
    assert json.loads(done.stdout) == [[1, 263]]
    done = run("--add_special=false", content=b'"a"\n"a"', model="llama-spm")
    assert json.loads(done.stdout) == [[263], [263]]


def test_raw_line_separators_of_unicode_stay_inside_a_string(run, real_tokenizer):
    done = run(content='"a\u2028\u0085b"\n'.encode())
    assert json.loads(done.stdout) == [real_tokenizer("smollm").encode("a\u2028\u0085b")]


def test_no_lines(run):
    assert json.loads(run(content=b"").stdout) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'"a"\nb\n', "line 2: not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b'"a"\n\n"b"\n', "line 2: not JSON"),
        (b'["a"]\n', "line 1: must be a JSON string, found list"),
        (b"null", "line 1: must be a JSON string, found NoneType"),
        (b'"\xff"\n', "line 1: not JSON: 'utf-8' codec can't decode byte 0xff"),
        (b"[" * 100_000, "line 1: not JSON: "),
    ],
)
def test_bad_lines(run, content, message):
    done = run(content=content)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_bad_files_and_flags(run):
    assert "--lines: cannot read" in run().stderr
    assert "--model is missing" in run(content=b"", model=None).stderr
    assert run("--model=absent.gguf", content=b"", model=None).returncode == 2
    done = run("--lines=", content=b"")
    assert (done.returncode, done.stderr) == (
        2,
        "error: --lines is missing: name a file with one JSON string a line\n",
    )
