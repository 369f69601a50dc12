"""`fragscope explain` from outside: input, output and exit codes."""

import json
import pathlib
import subprocess

import pytest

MESSAGE = (
    "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 1; 10.00 GiB total capacity; 4.00 GiB "
    "already allocated; 256.00 MiB free; 8.50 GiB reserved in total by PyTorch)\n"
)

WORDINGS = pathlib.Path(__file__).resolve().parents[1] / "golden/diagnose/wordings.jsonl"


def explain(build, *arguments, text=""):
    return subprocess.run(
        [build / "bin/fragscope", "explain", *arguments],
        input=text.encode(),
        capture_output=True,
        check=False,
    )


def test_json_has_exactly_the_promised_keys(build):
    done = explain(build, "--json", text=MESSAGE)
    assert done.returncode == 0 and not done.stderr
    answer = json.loads(done.stdout)
    assert list(answer) == [
        "verdict",
        "alternatives",
        "fields",
        "derived",
        "confidence",
        "why",
        "actions",
    ]
    assert answer["verdict"] == "fragmentation"
    assert answer["fields"]["tried_bytes"] == 512 << 20
    assert answer["fields"]["unallocated_bytes"] is None
    assert answer["fields"]["device_index"] == 1
    assert answer["derived"]["idle_reserved_bytes"] == 9 << 29


def test_file_and_standard_input_say_the_same(build, tmp_path):
    log = tmp_path / "train.log"
    log.write_text("epoch 1\n" * 1000 + MESSAGE)
    from_file = explain(build, str(log))
    assert from_file.returncode == 0
    assert from_file.stdout == explain(build, "-", text=log.read_text()).stdout
    assert from_file.stdout.startswith(b"verdict: fragmentation")


def test_context_decides_where_the_message_is_silent(build):
    bare = "RuntimeError: CUDA error: out of memory"
    alone = json.loads(explain(build, "--json", text=bare).stdout)
    told = json.loads(explain(build, "--json", "--context", "pin_memory=True", text=bare).stdout)
    assert alone["verdict"] == "unknown"
    assert told["verdict"] == "host_pinned"


def test_no_message_is_exit_code_1_and_one_line(build):
    done = explain(build, text="all is well\n")
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.count(b"\n") == 1
    done = explain(build, "--json", text="all is well\n")
    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"] == "unknown"


def test_what_cannot_be_read_is_exit_code_3_and_one_line(build, tmp_path):
    for name in (tmp_path / "missing", tmp_path):
        done = explain(build, str(name))
        assert done.returncode == 3 and not done.stdout
        assert done.stderr.count(b"\n") == 1 and str(name).encode() in done.stderr


@pytest.mark.parametrize("content, what", [(b"", "empty"), (b"\x7fELF\x00\x01\x02" * 99, "binary")])
def test_what_can_hold_no_message_is_bad_input(build, tmp_path, content, what):
    """As for every other command: exit code 3. Text without a message is an answer: 1."""
    file = tmp_path / "input"
    file.write_bytes(content)
    for arguments in ([str(file)], ["--json", str(file)], ["-"]):
        done = subprocess.run([build / "bin/fragscope", "explain", *arguments], input=content,
                              capture_output=True, check=False)
        assert done.returncode == 3
        assert done.stderr.count(b"\n") == 1 and what.encode() in done.stderr


def test_hostile_input_is_survived(build, tmp_path):
    log = tmp_path / "hostile.log"
    noise = bytes(range(256)) * 4096
    log.write_bytes(noise + b"\x00" * 100000 + b"x" * 3000000 + b"\n" + MESSAGE.encode() + noise)
    done = explain(build, "--json", str(log))
    assert done.returncode == 0
    assert json.loads(done.stdout)["fields"]["reserved_bytes"] == 17 << 29


@pytest.mark.parametrize("wording", [json.loads(line) for line in WORDINGS.read_text().splitlines()],
                         ids=lambda wording: wording["message"][:40])
def test_wordings_of_many_libraries(build, wording):
    done = explain(build, "--json", text=wording["message"])
    assert done.returncode == 0 and json.loads(done.stdout)["verdict"] in wording["verdicts"]
