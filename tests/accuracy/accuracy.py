"""Peaks of the simulated GPU against peaks that others measured on real cards.

usage: accuracy.py CSV [--python PYTHON] [--build DIR] [--only TEXT]

CSV: columns model, optimizer, batch, gpu, measured_bytes, torch (others are ignored); measured_bytes
is a peak without the context. PYTHON has the versions that the rows name (torch 2.6.0+cu124,
torchvision 0.21, transformers 4.51.3). Prints a line per row and, for convolutional and language
models, the median, the 95th percentile and the worst error.
Exit code: 0 all rows ran, 1 some did not, 2 the table cannot be read.
"""

import argparse
import csv
import os
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CARDS = {"NVIDIA GeForce RTX 3060": "rtx3060-12gb", "NVIDIA GeForce RTX 4060": "rtx4060-8gb"}


def simulate(options, row):
    """Peak reserved bytes, or the last line of what went wrong."""
    done = subprocess.run(
        [options.build / "bin/fragscope", "run", "-q", "--no-record", "--gpu", CARDS[row["gpu"]], "--",
         options.python, HERE / "train_row.py", row["model"], row["optimizer"], row["batch"]],
        capture_output=True, text=True, check=False)
    found = re.search(r"^peak (\d+)$", done.stdout, re.MULTILINE)
    return int(found.group(1)) if found else (done.stderr.strip().splitlines() or ["no output"])[-1]


def summary(title, errors):
    if not errors:
        return
    ordered = sorted(map(abs, errors))
    at = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    within = sum(e <= 2 for e in ordered)
    print(f"{title}: {len(ordered)} rows, median error {statistics.median(ordered):.2f} %, 95th percentile "
          f"{at:.2f} %, worst {ordered[-1]:.2f} %, within 2 %: {within}, mean signed {statistics.mean(errors):+.2f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=pathlib.Path)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "fragscope"
    parser.add_argument("--python", default=cache / "accuracy-venv/bin/python")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--only", default="", help="rows whose model contains this text")
    options = parser.parse_args()
    try:
        with options.table.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if options.only in row["model"]]
    except (OSError, KeyError) as error:
        print(f"accuracy: {options.table}: {error}", file=sys.stderr)
        return 2
    errors, failed = {"convolutional": [], "language": []}, 0
    for row in rows:
        peak, name = simulate(options, row), row["model"].split(" ")[0]
        if isinstance(peak, str):
            failed += 1
            print(f"{name:28} {row['optimizer']:8} {row['batch']:>4}  did not run: {peak[:90]}", flush=True)
            continue
        measured = int(row["measured_bytes"])
        error = 100 * (peak - measured) / measured
        errors["language" if "seq" in row["input"] else "convolutional"].append(error)
        print(f"{name:28} {row['optimizer']:8} {row['batch']:>4} measured {measured / 2**20:9.1f} MiB, simulated "
              f"{peak / 2**20:9.1f} MiB {error:+7.2f} %", flush=True)
    summary("convolutional", errors["convolutional"])
    summary("language", errors["language"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
