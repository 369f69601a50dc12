"""Peaks of the simulated GPU against peaks that others measured on real cards.

usage: accuracy.py CSV [--python PYTHON] [--build DIR] [--only TEXT]

CSV: columns model, optimizer, batch, gpu, measured_bytes, torch (others are ignored); measured_bytes
is a peak without what the published monitor saw at its first sample: the context, and of
convolutional models the model itself (train_row.py). PYTHON has the versions that the rows name (torch
2.6.0+cu124, torchvision 0.21, transformers 4.51.3). Prints a line per row, with the range that the
recording's report states for the peak (whatever workspaces cuDNN takes) and whether the measured one
lies in it; then, for convolutional and language models, the median, the 95th percentile and the worst
error, and the median of every second row alone; last the medians that the convolutional rows would have
had if the first sample had seen none or half of the model.
Exit code: 0 all rows ran, 1 some did not, 2 the table cannot be read.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CARDS = {"NVIDIA GeForce RTX 3060": "rtx3060-12gb", "NVIDIA GeForce RTX 4060": "rtx4060-8gb"}


def stated_range(program, directory):
    """(low, high) of the report of a recording; None: it states none, no convolution ran."""
    report = subprocess.run([program, "report", "--json", directory], capture_output=True, text=True, check=True)
    for process in json.loads(report.stdout)["processes"]:
        for device in process["devices"]:
            if "reserved_peak_range" in device:
                return device["reserved_peak_range"]["low"], device["reserved_peak_range"]["high"]
    return None


def simulate(options, row):
    """(reserved bytes, stated range or None, subtracted) at the peak, the first two less what the
    measurement subtracts; or the last line of what went wrong."""
    program = options.build / "bin/fragscope"
    with tempfile.TemporaryDirectory() as place:
        directory = pathlib.Path(place) / "row.fsr"
        done = subprocess.run(
            [program, "run", "-q", "--stacks", "none", "-o", directory, "--gpu", CARDS[row["gpu"]], "--",
             options.python, HERE / "train_row.py", row["model"], row["optimizer"], row["batch"]],
            capture_output=True, text=True, check=False)
        found = re.search(r"^peak (\d+)\nsubtracted (\d+)$", done.stdout, re.MULTILINE)
        if not found:
            return (done.stderr.strip().splitlines() or ["no output"])[-1]
        peak, subtracted = map(int, found.groups())
        stated = stated_range(program, directory)
        return peak - subtracted, stated and tuple(bound - subtracted for bound in stated), subtracted


def range_text(stated, measured):
    if stated is None:
        return ""
    low, high = (100 * (bound - measured) / measured for bound in stated)
    return f", stated {low:+.1f} … {high:+.1f} %: {'inside' if low <= 0 <= high else 'OUTSIDE'}"


def summary(title, errors):
    if not errors:
        return
    ordered = sorted(map(abs, errors))
    at = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    within = sum(e <= 2 for e in ordered)
    halves = " and ".join(f"{statistics.median(map(abs, half)):.2f}" for half in (errors[::2], errors[1::2]) if half)
    print(f"{title}: {len(ordered)} rows, median error {statistics.median(ordered):.2f} % (halves {halves}), 95th "
          f"percentile {at:.2f} %, worst {ordered[-1]:.2f} %, within 2 %: {within}, mean signed "
          f"{statistics.mean(errors):+.2f} %")


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
    by_sample = {"none": [], "half": []}  # errors, had the first sample seen that much of the model
    ranges, inside = 0, 0
    for row in rows:
        answer, name = simulate(options, row), row["model"].split(" ")[0]
        if isinstance(answer, str):
            failed += 1
            print(f"{name:28} {row['optimizer']:8} {row['batch']:>4}  did not run: {answer[:90]}", flush=True)
            continue
        peak, stated, subtracted = answer
        measured = int(row["measured_bytes"])
        if stated:
            ranges += 1
            inside += stated[0] <= measured <= stated[1]
        error = 100 * (peak - measured) / measured
        errors["language" if "seq" in row["input"] else "convolutional"].append(error)
        if subtracted:
            for seen, share in (("none", 1.0), ("half", 0.5)):
                by_sample[seen].append(100 * abs(peak + share * subtracted - measured) / measured)
        print(f"{name:28} {row['optimizer']:8} {row['batch']:>4} measured {measured / 2**20:9.1f} MiB, simulated "
              f"{peak / 2**20:9.1f} MiB {error:+7.2f} %{range_text(stated, measured)}", flush=True)
    summary("convolutional", errors["convolutional"])
    summary("language", errors["language"])
    for seen, rows_of_it in by_sample.items():
        if rows_of_it:
            print(f"convolutional, had the first sample seen {seen} of the model: median error "
                  f"{statistics.median(rows_of_it):.2f} %")
    if ranges:
        print(f"stated ranges: {inside} of {ranges} hold the measured peak")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
