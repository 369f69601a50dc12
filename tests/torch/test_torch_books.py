"""A real PyTorch against the simulated device's books: every call of its allocators, by count, bytes,
address and result, for each way in which torch asks CUDA for memory."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from torch import nn
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), 2).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(3):
    batch = torch.randn(8, 64, 256).pin_memory().to("cuda", non_blocking=True)
    model(batch).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if torch.cuda.get_allocator_backend() == "native":
    graph, static = torch.cuda.CUDAGraph(), torch.randn(1024, 1024, device="cuda")
    with torch.cuda.graph(graph):
        result = static * 2 + 1
    graph.replay()
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    print("refused")
del batch
torch.cuda.empty_cache()
free, total = torch.cuda.mem_get_info()
print(total - free)
"""


@pytest.mark.parametrize("conf", ["", "expandable_segments:True", "backend:cudaMallocAsync",
                                  "pinned_use_cuda_host_register:True", "max_split_size_mb:40"])
def test_torch_is_recorded_to_the_last_call(build, root, tmp_path, conf):
    books, directory = tmp_path / "books.txt", tmp_path / "run.fsr"
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [build / "bin/fragscope", "run", "-q", "--gpu", "16GiB", "--sim-log", books, "-o", directory,
               "--", sys.executable, script]
    environment = {"PYTORCH_CUDA_ALLOC_CONF": conf} if conf else {}
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=600,
                          env=dict(os.environ, **environment), check=False)
    assert done.returncode == 0 and done.stdout.startswith("refused\n"), done.stdout + done.stderr
    check = subprocess.run([sys.executable, root / "tools/check_books.py", directory, books, "--fragscope",
                            build / "bin/fragscope"], text=True, capture_output=True, timeout=600, check=False)
    assert check.returncode == 0, check.stdout + check.stderr
    report = subprocess.run([build / "bin/fragscope", "report", "--json", "--no-stacks", directory], text=True,
                            capture_output=True, timeout=600, check=True)
    (process,) = json.loads(report.stdout)["processes"]
    device = process["devices"][0]
    assert process["coverage"]["unhooked"] == {}
    assert any(f["result"] == 2 and f["largest_bytes"] >= 1 << 40 for f in process["failures"]) or \
        "expandable" in conf
    # Everything that the device says is in use is in the books, but for what pools hold beyond blocks.
    info = device["memory_info"]
    assert info["used_bytes"] == int(done.stdout.split()[1])
    context = info["used_bytes"] - device["driver_bytes"]["final"]
    assert info["last_unexplained_bytes"] == context or "Async" in conf
    if "Async" not in conf:
        assert info["last_unexplained_bytes"] == info["first_unexplained_bytes"]
