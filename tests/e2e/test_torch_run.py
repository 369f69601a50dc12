"""The judged scenario: a real PyTorch training script on the simulated GPU under the recorder."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")

SCRIPT = """
import json, os, sys, torch
from torch.utils.data import DataLoader, Dataset

def make_model():
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return Small()
    return GPT2LMHeadModel(GPT2Config(n_layer=3, n_head=4, n_embd=128, vocab_size=2000,
                                      n_positions=64))

class Loss:
    def __init__(self, loss):
        self.loss = loss

class Small(torch.nn.Module):
    # For a Python without transformers: the same shape of work.
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(2000, 128)
        layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
        self.body = torch.nn.TransformerEncoder(layer, 3)
        self.head = torch.nn.Linear(128, 2000)

    def forward(self, input_ids, labels):
        out = self.head(self.body(self.embed(input_ids)))
        return Loss(torch.nn.functional.cross_entropy(out.flatten(0, 1), labels.flatten()))

class Tokens(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return torch.full((48,), index % 50, dtype=torch.long)

def main():
    torch.manual_seed(0)
    model = make_model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Tokens(), batch_size=4, num_workers=2, pin_memory=True)
    for epoch in range(2):
        for batch in loader:
            batch = batch.cuda(non_blocking=True)
            loss = model(input_ids=batch, labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(json.dumps(torch.cuda.memory_stats()))
    sys.stdout.flush()
    os._exit(0)

if __name__ == "__main__":
    main()
"""


def pythons():
    """Interpreters to test: FRAGSCOPE_TORCH_PYTHON (or this one), and the old torch's if there."""
    found = [os.environ.get("FRAGSCOPE_TORCH_PYTHON") or sys.executable]
    old = CACHE / "fragscope/torch26-venv/bin/python"
    if old.exists():
        found.append(str(old))
    return found


def has(python, module):
    probe = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", probe], check=False).returncode == 0


@pytest.fixture(scope="module", params=pythons(), ids=lambda p: pathlib.Path(p).parents[1].name)
def torch_python(request):
    if not has(request.param, "torch"):
        pytest.skip(f"{request.param} has no torch")
    return request.param


@pytest.fixture
def script(torch_python, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def figures(output):
    return json.loads(output.decode().splitlines()[-1])


def test_gpt2_training_is_recorded_exactly(fragscope, torch_python, script):
    env = {"PYTHONWARNINGS": "ignore"}
    plain = fragscope("run", "--gpu", "24GiB", "--no-record", "-q", "--", torch_python, script,
                      env=env)
    assert plain.returncode == 0, plain.stderr.decode()
    run = fragscope.record(torch_python, script, gpu="24GiB", env=env)
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    assert figures(run.finished.stdout) == figures(plain.stdout)
    assert run.finished.stdout == plain.stdout
    check_report(fragscope, run, figures(plain.stdout))
    check_verify(fragscope, run)


def main_process(answer):
    with_blocks = [p for p in answer["processes"] if p["block_source"] == "adaptor"]
    assert len(with_blocks) == 1, answer["processes"]
    assert with_blocks[0]["dropped_events"] == 0
    return with_blocks[0]


def check_report(fragscope, run, stats):
    report = json.loads(fragscope("report", "--json", run.directory, check=True).stdout)
    process = main_process(report)
    assert process["exit"] == {"kind": "exited", "code": 0}
    device = process["devices"][0]
    assert device["simulated"] is True
    for key, name in (("reserved_bytes", "reserved_bytes"), ("allocated_bytes", "allocated_bytes"),
                      ("requested_bytes", "requested_bytes")):
        assert device[key]["peak"] == stats[f"{name}.all.peak"], key
        assert device[key]["final"] == stats[f"{name}.all.current"], key


def check_verify(fragscope, run):
    answer = json.loads(fragscope("replay", "--json", run.directory, check=True).stdout)
    verify = main_process(answer)["devices"][0]["verify"]
    assert verify["block_events"] > 1000
    assert verify["address_matches"] == verify["block_events"], verify["first_divergence"]
    assert verify["segment_matches"] == verify["segment_calls"] > 0, verify["first_divergence"]


SETTINGS = """
import os, torch
print(os.environ["PYTORCH_CUDA_ALLOC_CONF"])
kept = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
kept = None
small = torch.empty(15 << 20, dtype=torch.uint8, device="cuda")
print(torch.cuda.memory_reserved())
"""


def test_split_limit_reaches_torch(fragscope, torch_python):
    env = {"PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.8,max_split_size_mb:512"}
    run = fragscope.record(torch_python, "-c", SETTINGS, gpu="4GiB", env=env,
                           options=["--max-split-size-mb", "21"])
    conf, reserved = run.finished.stdout.decode().split()
    assert conf == "garbage_collection_threshold:0.8,max_split_size_mb:21"
    free = fragscope.record(torch_python, "-c", SETTINGS, gpu="4GiB", env=env)
    assert int(reserved) != int(free.finished.stdout.split()[1])  # the limit changed the layout
    assert run.info()["run"]["notes"]["enforce"] == "native"


def test_settings_that_torch_refuses_are_refused_before(fragscope, torch_python, tmp_path):
    marker = tmp_path / "ran"
    done = fragscope("run", "--gpu", "4GiB", "--max-split-size-mb", "3", "--", torch_python, "-c",
                     f"open({str(marker)!r}, 'w')")
    assert done.returncode == 2
    assert b"torch" in done.stderr and done.stderr.count(b"\n") == 1
    assert not marker.exists()


CONVOLUTIONS = """
import torch
picture, total = torch.randn(8, 16, 64, 64).cuda(), torch.cuda.mem_get_info()[1]
layers = torch.nn.Sequential(*[torch.nn.Conv2d(16 << i, 32 << i, 3, padding=1) for i in range(2)]).cuda()
layers(picture).sum().backward()
print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), total, flush=True)
__import__("os")._exit(0)  # torch's thread may abort an interpreter that ends right after backward()
"""


def conv_report(fragscope, python, gpu, script):
    run = fragscope.record(python, "-c", script, gpu=gpu)
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    (process,) = json.loads(fragscope("report", "--json", run.directory, check=True).stdout)["processes"]
    text = fragscope("report", run.directory, check=True).stdout.decode()
    return [int(word) for word in run.finished.stdout.split()], process["devices"][0], text


def test_the_range_of_the_peak_follows_from_the_convolutions(fragscope, torch_python):
    (allocated, reserved, total), device, text = conv_report(fragscope, torch_python, "8GiB", CONVOLUTIONS)
    # Assumed at most: of the second filter's gradient, both operands in NHWC and its parts. Of a
    # gradient as an explicit product: three operands, 9 input values a pixel, parts. Records of the
    # room, in the order of the calls: forward 1 and 2, data 2, filter 2.
    pixels, first, second = 8 * 64 * 64, 32 * 16 * 9, 64 * 32 * 9
    parts = min(108 // 3, pixels // 512) * second
    copies = [pixels * (16 + 32) + first, pixels * (32 + 64) + second]
    product = copies[1] + pixels * 32 * 9
    room = 4 * (copies[0] + copies[1] + product + product + parts)
    assumed = 4 * (pixels * (32 + 64) + parts)
    assert device["reserved_peak_range"] == {"low": allocated - assumed, "high": min(reserved + room, total)}
    assert "whatever workspaces cuDNN takes" in text
    (_, reserved, total), device, _ = conv_report(fragscope, torch_python, "120MiB", CONVOLUTIONS)
    assert device["reserved_peak_range"]["high"] == total < reserved + room
    _, device, text = conv_report(fragscope, torch_python, "8GiB",
                                  "import torch\ntorch.ones(9).cuda()\nprint(0)")
    assert "reserved_peak_range" not in device and "whatever workspaces" not in text
