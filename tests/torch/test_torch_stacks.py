"""Python frames and NVTX ranges of a real PyTorch, which allocates with the GIL released."""

import json
import os
import pathlib
import subprocess
import sys

SCRIPT = """
import os
import torch

def make(n):
    return torch.ones(n, device="cuda")

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 256)

    def forward(self, x):
        with torch.cuda.nvtx.range("inner"):
            return self.layer(x)

x = make(1 << 20)
net = Net().cuda()
torch.cuda.nvtx.range_push("step")
loss = net(torch.ones(64, 256, device="cuda")).sum()
loss.backward()
torch.cuda.nvtx.range_pop()
torch.cuda.nvtx.mark("done")
torch.cuda.synchronize()
os._exit(0)  # threads of PyTorch may outlive the interpreter
"""


def record(build, tmp_path):
    script, run = tmp_path / "train.py", tmp_path / "run.fsr"
    script.write_text(SCRIPT)
    fragscope = build / "bin/fragscope"
    subprocess.run([fragscope, "run", "-q", "--gpu", "2GiB", "-o", run, "--", sys.executable, script],
                   check=True, timeout=240)
    events = subprocess.run([fragscope, "events", "--jsonl", "--stacks", run], check=True,
                            capture_output=True, timeout=240).stdout
    report = subprocess.run([fragscope, "report", "--json", run], check=True, capture_output=True,
                            timeout=240).stdout
    return [json.loads(line) for line in events.splitlines()], json.loads(report)


def names(event):
    return [f["function"].split(".")[-1] for f in event["stack"] or [] if f.get("python")]


def test_blocks_have_the_lines_that_asked_for_them(build, tmp_path):
    events, report = record(build, tmp_path)
    allocs = [e for e in events if e["kind"] == "alloc"]
    (made,) = [e for e in allocs if e["requested"] == 4 << 20]
    assert names(made) == ["make", "<module>"]
    lines = SCRIPT.splitlines()
    assert [lines[f["line"] - 1].strip() for f in made["stack"] if f.get("python")] == [
        'return torch.ones(n, device="cuda")', "x = make(1 << 20)"]
    forward = [e for e in allocs if "forward" in names(e)]
    assert forward and all(names(e)[-1] == "<module>" for e in forward)
    # Every block that the main thread took has a Python stack.
    main = [e for e in allocs if e["tid"] == e["pid"]]
    assert main and all(names(e) for e in main)


def test_nvtx_ranges_are_phases(build, tmp_path):
    events, report = record(build, tmp_path)
    marks = [(e["kind"], e.get("text")) for e in events if e["plane"] == "mark"]
    assert marks == [("range_push", "step"), ("range_push", "inner"), ("range_pop", None),
                     ("range_pop", None), ("mark", "done")]
    phases = {p["name"]: p for p in report["processes"][0]["phases"]}
    assert [*phases] == ["step", "inner"]
    assert phases["step"]["allocated_peak_bytes"] > 4 << 20


def test_torch_is_found_in_a_child_of_a_shell(build, tmp_path):
    script, run = tmp_path / "train.py", tmp_path / "run.fsr"
    script.write_text("import torch; torch.ones(1000, device='cuda')")
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "FRAGSCOPE_TORCH_ADAPTOR_DIR": str(tmp_path / "adaptors")}
    subprocess.run([build / "bin/fragscope", "run", "-q", "--gpu", "2GiB", "-o", run, "--", "bash",
                    "-c", f"cd /; python {script}; true"], check=True, timeout=240, env=environment)
    info = json.loads(subprocess.run([build / "bin/fragscope", "info", "--json", run], check=True,
                                     capture_output=True).stdout)
    assert [p["properties"]["block_source"] for p in info["processes"]] == ["adaptor"]
