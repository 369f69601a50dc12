"""Fragmentation of recorded training programs under PyTorch's settings and under a plan.

usage: enforce_table.py [--build DIR] [--only NAME;…] [--output FILE]

Records each program on a simulated 80 GB card with the Python that runs this script (it needs torch;
those that need more say so and are left out), replays the recording exactly under other settings,
plans it, and runs it again with the plan in force. Prints a table in Markdown; the figure of each
column is the peak of reserved memory and how much of it lies above the live peak, below which no
allocator can get: 1 - live peak / reserved peak.
Exit code: 0, 1 when a program could not be recorded.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "tests/workloads/scripts"
CARD = "80GiB"
SPLITS = (32, 64, 128, 256, 512)

# name: script with arguments, what it needs beyond torch; None: the bundled demo
PROGRAMS = {
    "demo (lengths vary)": (None, []),
    "recurrent": ("recurrent.py", []),
    "transformer": ("transformer.py", []),
    "gpt2": ("language_model.py gpt2", ["transformers"]),
    "gpt2, checkpointing": ("language_model.py gpt2 --checkpointing", ["transformers"]),
    "llama": ("language_model.py llama", ["transformers"]),
    "optimizers": ("optimizers.py", []),
    "fsdp, one of 8": ("distributed.py fake", []),
    "mlp": ("steps_mlp.py", []),
    "unet": ("steps_unet.py", []),
    "four lengths in turn": ("steps_lengths.py", []),
    "generate (no training)": ("generate.py", ["transformers"]),
}
# The script, with PyTorch's memory served by libfragscope_alloc.so, which PyTorch does not ask for
# statistics.
ENABLE = """
import runpy, sys
import fragscope.torch, torch
fragscope.torch.enable()
def figure(name):
    return lambda device=0: fragscope.torch.memory_stats(0)[name]
for module in (torch.cuda, torch.cuda.memory):
    module.max_memory_allocated = figure("allocated_bytes.all.peak")
    module.max_memory_reserved = figure("reserved_bytes.all.peak")
    module.memory_allocated = figure("allocated_bytes.all.current")
    module.memory_reserved = figure("reserved_bytes.all.current")
    module.reset_peak_memory_stats = lambda device=0: None
sys.argv = sys.argv[1:]
sys.path.insert(0, {scripts!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def call(arguments, check=True, environment=None):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True,
                          env=dict(os.environ, **(environment or {})))
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr.strip()[-500:]}")
    return done


class Table:
    def __init__(self, build, scratch):
        self.fragscope = build / "bin/fragscope"
        self.demo = build / "bin/fragscope-demo-train"
        self.scratch = scratch

    def ask(self, *arguments, check=True):
        done = call([self.fragscope, *arguments], check)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def run(self, name, command, *options):
        out = self.scratch / f"{name}.fsr"
        python = str(ROOT / "tools/python")
        call([self.fragscope, "run", "-q", "--gpu", CARD, "-o", out, *options, "--", *command],
             environment={"PYTHONPATH": python})
        return out

    @staticmethod
    def busiest(report, figure="reserved_bytes"):
        """The device that had most reserved, and its process."""
        devices = [(device, process["pid"]) for process in report["processes"]
                   for device in process["devices"] if device.get(figure)
                   and device[figure]["peak"]]
        return max(devices, key=lambda pair: pair[0][figure]["peak"])

    def replayed(self, out, pid, conf):
        answer = self.ask("replay", "--json", "--alloc-conf", conf, out)
        (process,) = [p for p in answer["processes"] if p["pid"] == pid]
        device, _ = self.busiest({"processes": [process]})
        return device["reserved_bytes"]["peak"]

    def plan(self, out, pid):
        """The plan of the repeating step, else of the whole run."""
        path = self.scratch / "plan.json"
        for step in ("auto", "whole"):
            answer = self.ask("plan", "--json", "--pid", pid, "--step", step, "-o", path, out,
                              check=False)
            if answer:
                return path, answer
        raise RuntimeError(f"{out}: no plan can be made")

    def enforced(self, name, script, path):
        if script is None:
            return None  # its allocator lies above cudaMalloc: nothing of ours is between
        words = script.split()
        command = [sys.executable, "-W", "ignore", "-c", ENABLE.format(scripts=str(SCRIPTS)),
                   SCRIPTS / words[0], *words[1:]]
        try:
            out = self.run(f"{name}-planned", command, "--plan", path)
            return self.busiest(self.ask("report", "--json", out))[0]["reserved_bytes"]["peak"]
        except (RuntimeError, ValueError) as problem:
            print(f"{name}: not enforced: {problem}", file=sys.stderr)
            return None

    def row(self, name, script):
        words = script.split() if script else []
        command = [sys.executable, "-W", "ignore", SCRIPTS / words[0], *words[1:]] if script \
            else [self.demo]
        key = name.replace(" ", "-").replace(",", "").replace("(", "").replace(")", "")
        out = self.run(key, command)
        device, pid = self.busiest(self.ask("report", "--json", out))
        splits = {mb: self.replayed(out, pid, f"max_split_size_mb:{mb}") for mb in SPLITS}
        best = min(splits, key=splits.get)
        path, plan = self.plan(out, pid)
        figures = plan["figures"]
        return {
            "program": name,
            "requests": figures["recorded_requests"],
            "default": device["reserved_bytes"]["peak"],
            "max_split": splits[best],
            "max_split_mb": best,
            "expandable": self.replayed(out, pid, "expandable_segments:True"),
            "planned": figures["planned_reserved_peak_bytes"],
            "enforced": self.enforced(key, script, path),
            "bound": figures["planned_allocated_peak_bytes"],
            "found_by": plan["made_from"]["found_by"],
            "placed": figures["placed_requests"],
        }


def cell(bytes_, bound):
    if bytes_ is None:
        return "–"
    size = f"{bytes_ / 2**30:.2f} GiB" if bytes_ >= 2**30 else f"{bytes_ / 2**20:.1f} MiB"
    return f"{size} ({100 * (1 - bound / bytes_):.1f} %)"


def text_of(rows):
    lines = ["| program | requests | default | max_split (best MiB) | expandable | planned | "
             "plan enforced | live bound | plan of |",
             "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        bound = row["bound"]
        size = f"{bound / 2**30:.2f} GiB" if bound >= 2**30 else f"{bound / 2**20:.1f} MiB"
        lines.append(
            f"| {row['program']} | {row['requests']} | {cell(row['default'], bound)} | "
            f"{cell(row['max_split'], bound)} {row['max_split_mb']} | "
            f"{cell(row['expandable'], bound)} | {cell(row['planned'], bound)} | "
            f"{cell(row['enforced'], bound)} | {size} | "
            f"{'step' if row['found_by'] != 'whole' else 'whole run'} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--only", default="")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    unknown = [n for n in options.only.split(";") if n and n not in PROGRAMS]
    if unknown:
        parser.error(f"--only: no program {unknown[0]!r}; there are {'; '.join(PROGRAMS)}")
    wanted = [n for n in options.only.split(";") if n] or list(PROGRAMS)
    rows, failed = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        table = Table(options.build.resolve(), pathlib.Path(scratch))
        for name in wanted:
            script, needs = PROGRAMS[name]
            lacking = [p for p in needs if importlib.util.find_spec(p) is None]
            if lacking:
                print(f"{name}: left out, no {lacking[0]}", file=sys.stderr)
                continue
            try:
                rows.append(table.row(name, script))
            except (RuntimeError, ValueError) as problem:
                print(f"{name}: {problem}", file=sys.stderr)
                failed = 1
    text = text_of(rows)
    if options.output:
        options.output.write_text(text)
    print(text, end="")
    return failed


if __name__ == "__main__":
    sys.exit(main())
