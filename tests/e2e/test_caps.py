"""Caps and failures on purpose (src/enforce/CAPS.md): a capped large card answers like a small one,
books stay exact, and what was enforced stands in the run."""

import json
import os
import signal
import subprocess

import pytest

from conftest import Run, one_line

LARGE = ("--memory-limit", "4GiB", "--pinned-limit", "512MiB")


def caps_program(fragscope, *words):
    return [str(fragscope.programs / "cuda_caps"), *map(str, words)]


def said(run):
    assert run.finished.returncode == 0, run.finished.stderr.decode()
    return run.finished.stdout.decode()


def comparable(text):
    """A small card's stream-ordered pool takes memory in its own steps; a cap counts bytes."""
    return [line for i, line in enumerate(text.splitlines())
            if not line.startswith("cudaMallocAsync")]


def test_a_capped_card_answers_like_a_small_one(fragscope):
    small = said(fragscope.record(*caps_program(fragscope, "kinds"), gpu="4GiB",
                                  options=("-q", "--pinned-limit", "512MiB")))
    capped = said(fragscope.record(*caps_program(fragscope, "kinds"), gpu="24GiB",
                                   options=("-q", *LARGE)))
    assert comparable(capped) == comparable(small)
    assert "cudaMalloc: 40 pieces, then 2, last 2, again 0, free 96 MiB" in capped
    assert "cudaMallocAsync: 40 pieces, then 2, last 2, again 0" in capped
    assert "cuMemCreate: 40 pieces, then 2, last 0" in capped  # the driver keeps no last error
    assert "cudaHostRegister: 5 pieces, then 2, last 2, again 0" in capped


def test_a_device_says_what_it_is_capped_at(fragscope):
    small = said(fragscope.record(*caps_program(fragscope, "info"), gpu="4GiB", options=("-q",)))
    run = fragscope.record(*caps_program(fragscope, "info"), gpu="24GiB",
                           options=("-q", "--memory-limit", "4GiB"))
    assert said(run) == small
    assert small.splitlines()[:4] == [f"{what} {4 << 30}" for what in
                                      ("runtime total", "driver total", "device total",
                                       "properties")]
    (device,) = run.info()["processes"][0]["devices"]
    assert (device["total_bytes"], device["card_bytes"]) == (4 << 30, 24 << 30)


def test_a_cap_above_the_card_changes_nothing(fragscope):
    plain = said(fragscope.record(*caps_program(fragscope, "info"), gpu="4GiB", options=("-q",)))
    run = fragscope.record(*caps_program(fragscope, "info"), gpu="4GiB",
                           options=("-q", "--memory-limit", "80GiB"))
    assert said(run) == plain
    assert "card_bytes" not in run.info()["processes"][0]["devices"][0]


def test_books_balance_after_threads_failures_and_resets(fragscope):
    capped = said(fragscope.record(*caps_program(fragscope, "balance"), gpu="24GiB",
                                   options=("-q", "--memory-limit", "400MiB")))
    assert capped == "threads 0\nfailed free 100\nzero 0\nreset 0\n"


def test_the_end_of_a_context_gives_back_what_was_its_own(fragscope):
    capped = said(fragscope.record(*caps_program(fragscope, "contexts"), gpu="24GiB",
                                   options=("-q", "--memory-limit", "400MiB")))
    assert capped == "create 0 alloc 0\ntaken 110\ndestroy 0\nleft 10\nleft 0\n"


@pytest.mark.parametrize("which, failing", [
    ("3", [3]), ("3-5", [3, 4, 5]), ("8+", [8, 9, 10]), ("11", []),
])
def test_chosen_calls_fail(fragscope, which, failing):
    expected = "".join("x" if call in failing else "." for call in range(1, 11))
    run = fragscope.record(*caps_program(fragscope, "calls", 10), options=("-q", "--oom-at", which))
    assert said(run).strip() == expected
    refused = [e.get("refused", False) for e in run.events()]
    assert refused == [c == "x" for c in expected]
    assert run.info()["run"]["notes"]["limit.oom_at"] == which


def test_a_rate_fails_the_same_calls_every_time(fragscope):
    answers = [said(fragscope.record(*caps_program(fragscope, "calls", 400),
                                     options=("-q", "--fail-rate", rate)))
               for rate in ("30%:7", "0.3:7", "0.3:8", "0", "1")]
    assert answers[0] == answers[1] != answers[2]
    assert 80 < answers[0].count("x") < 160
    assert answers[3].count("x") == 0 and answers[4].count(".") == 0


def start_holder(fragscope, environment, mib):
    holder = subprocess.Popen(caps_program(fragscope, "hold", mib), env=environment,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return holder, holder.stdout.readline().split()


def plain_environment(build, fragscope, tmp_path, **limits):
    """A plain preload of shim and simulated GPU, without `fragscope run`."""
    sim = build / "lib/fragscope/sim"
    return fragscope.environment | {
        "LD_PRELOAD": f"{build / 'lib/libfragscope.so'}:{sim / 'libcudart.so.13'}",
        "LD_LIBRARY_PATH": str(sim),
        "FRAGSCOPE_SIM": f"total_bytes={24 << 30}",
        "FRAGSCOPE_OUT": str(tmp_path / "plain.fsr"),
        **limits,
    }


def test_a_run_shares_one_account_that_survives_its_members(build, fragscope, tmp_path):
    environment = plain_environment(
        build, fragscope, tmp_path, FRAGSCOPE_MEMORY_LIMIT="2GiB",
        FRAGSCOPE_MEMORY_LIMIT_SCOPE="run", FRAGSCOPE_MEMORY_ACCOUNT=str(tmp_path / "account"))
    first, answer = start_holder(fragscope, environment, 1500)
    assert answer == ["0", "548"]
    second, answer = start_holder(fragscope, environment, 1000)
    assert answer == ["2", "548"]  # refused: 1500 of 2048 are taken
    third, answer = start_holder(fragscope, environment, 500)
    assert answer == ["0", "48"]
    first.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # a zombie: nobody has waited for it
    fourth, answer = start_holder(fragscope, environment, 1400)
    assert answer == ["0", "148"]
    for holder in (first, second, third, fourth):
        holder.communicate("")
    fifth, answer = start_holder(fragscope, environment, 2000)
    assert answer == ["0", "48"]
    fifth.communicate("")


def test_the_processes_of_a_command_share_a_run_limit(fragscope):
    program = str(fragscope.programs / "cuda_caps")
    script = f"{program} hold 1500 </dev/null; {program} hold 1000 </dev/null"
    run = fragscope.record("sh", "-c", script, gpu="24GiB",
                           options=("--memory-limit", "2GiB", "--memory-limit-scope", "run"))
    assert said(run) == "0 548\n0 1048\n"  # one after the other: each has all of it
    assert run.info()["run"]["notes"]["limit.scope"] == "run"


def test_the_variables_do_what_the_options_do(build, fragscope, tmp_path):
    environment = plain_environment(build, fragscope, tmp_path, FRAGSCOPE_OOM_AT="2")
    done = subprocess.run(caps_program(fragscope, "calls", 4), env=environment,
                          capture_output=True, text=True, check=True)
    assert done.stdout == ".x..\n"


def test_variables_that_cannot_be_read_enforce_nothing_and_say_so(build, fragscope, tmp_path):
    environment = plain_environment(build, fragscope, tmp_path, FRAGSCOPE_MEMORY_LIMIT="a lot")
    done = subprocess.run(caps_program(fragscope, "calls", 4), env=environment,
                          capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("....\n", "")
    info = Run(fragscope, tmp_path / "plain.fsr", done).info()
    assert "FRAGSCOPE_MEMORY_LIMIT" in info["processes"][0]["properties"]["limit.problem"]


def test_without_an_account_each_process_is_held_by_itself_and_it_is_said(build, fragscope, tmp_path):
    (tmp_path / "account").write_text("something else")
    environment = plain_environment(
        build, fragscope, tmp_path, FRAGSCOPE_MEMORY_LIMIT="1GiB",
        FRAGSCOPE_MEMORY_LIMIT_SCOPE="run", FRAGSCOPE_MEMORY_ACCOUNT=str(tmp_path / "account"))
    holder, answer = start_holder(fragscope, environment, 2000)
    holder.communicate("")
    assert answer == ["2", "1024"]
    info = Run(fragscope, tmp_path / "plain.fsr", None).info()
    problem = info["processes"][0]["properties"]["limit.problem"]
    assert "not an account of fragscope" in problem and "by itself" in problem


@pytest.mark.parametrize("options, words", [
    (("--memory-limit", "much"), "--memory-limit"),
    (("--memory-limit", "0"), "--memory-limit"),
    (("--oom-at", "0"), "--oom-at"),
    (("--fail-rate", "2"), "--fail-rate"),
    (("--warn-at", "200%"), "--warn-at"),
    (("--on-oom", "explode"), "--on-oom"),
    (("--memory-limit-scope", "run"), "--memory-limit-scope"),
    (("--no-record", "--memory-limit", "1GiB"), "--no-record"),
])
def test_options_that_make_no_sense_are_refused(fragscope, options, words):
    directory = fragscope.new_directory()
    done = fragscope("run", "--gpu", "1GiB", "-o", directory, *options, "--", "true")
    assert done.returncode == 2 and words in one_line(done.stderr)
    assert not directory.exists()


def test_a_variable_of_the_users_is_checked_too(fragscope):
    done = fragscope("run", "--gpu", "1GiB", "-o", fragscope.new_directory(), "--", "true",
                     env={"FRAGSCOPE_OOM_AT": "never"})
    assert done.returncode == 2 and "FRAGSCOPE_OOM_AT" in one_line(done.stderr)


def test_explain_and_report_name_the_cap(fragscope):
    run = fragscope.record(*caps_program(fragscope, "kinds"), gpu="24GiB", options=("-q", *LARGE))
    text = fragscope("explain", run.directory, check=True).stdout.decode()
    assert "capped at 4.00 GiB (--memory-limit)" in text
    report = fragscope("report", run.directory, check=True).stdout.decode()
    assert "a cap was in force (--memory-limit); the card has 24.00 GiB" in report
    assert "total 4.00 GiB" in report
    (process,) = json.loads(fragscope("explain", "--json", run.directory).stdout)["processes"]
    assert len(process["limits"]) == 2


def test_the_demos_replay_is_exact_under_a_cap(build, fragscope):
    """The demo's allocator on a large card with a cap: the replay is told of it."""
    demo = build / "bin/fragscope-demo-train"
    small = fragscope.record(demo, gpu="12GiB", options=("-q",))
    capped = fragscope.record(demo, gpu="24GiB", options=("-q", "--memory-limit", "12GiB"))
    assert "OutOfMemoryError" in small.finished.stderr.decode() + small.finished.stdout.decode()
    assert "capacity of 12.00 GiB" in capped.finished.stderr.decode() + capped.finished.stdout.decode()
    replay = json.loads(fragscope("replay", "--json", "--strict", capped.directory, check=True).stdout)
    (device,) = replay["processes"][0]["devices"]
    verify = device["verify"]
    assert verify["address_matches"] == verify["block_events"] > 1000
    assert verify["segment_matches"] == verify["segment_calls"] > 500
    what_if = json.loads(fragscope("replay", "--json", capped.directory, "--max-split-size-mb", "32",
                                   check=True).stdout)
    assert what_if["processes"][0]["devices"][0]["ooms_avoided"] == 1
