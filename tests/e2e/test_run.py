"""`fragscope run` is invisible to the command: streams, signals, exit codes, terminal."""

import fcntl
import os
import pty
import shutil
import signal
import subprocess
import sys

import pytest

from conftest import one_line

CATCHER = """
import os, signal, sys
def tell(number, frame):
    os.write(1, b"got %d\\n" % number)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, tell)
os.write(1, b"ready\\n")
for line in iter(lambda: os.read(0, 1), b""):
    pass
"""


@pytest.mark.parametrize("command, code", [
    (["sh", "-c", "exit 0"], 0),
    (["sh", "-c", "exit 7"], 7),
    (["sh", "-c", "exit 255"], 255),
    (["sh", "-c", "kill -9 $$"], 128 + 9),
    (["sh", "-c", "kill -TERM $$"], 128 + 15),
    (["no-such-command-here"], 127),
    (["/dev/null"], 126),
])
@pytest.mark.parametrize("recording", [[], ["--no-record"]])
def test_exit_code_is_the_commands(fragscope, command, code, recording):
    directory = fragscope.new_directory()
    done = fragscope("run", "--gpu", "1GiB", "-o", directory, *recording, "--", *command)
    assert done.returncode == code
    if code in (126, 127):
        one_line(done.stderr)
        assert not directory.exists()


@pytest.mark.parametrize("arguments, code", [
    (["run"], 2),
    (["run", "--no-such-option", "--", "true"], 2),
    (["run", "--gpu", "nonsense", "--", "true"], 2),
    (["run", "--gpu", "1GiB", "--depth", "0", "--", "true"], 2),
    (["run", "--gpu", "1GiB", "--log-bytes", "many", "--", "true"], 2),
    (["run", "--gpu", "1GiB", "--enforce", "shim", "--", "true"], 2),
    (["run", "--gpu", "1GiB", "--enforce", "shim", "--alloc-conf", "expandable_segments:True",
      "--", "true"], 2),
    (["run", "--gpu", "1GiB", "--alloc-conf", "no_such_key:1", "--", "true"], 2),
    (["run", "--gpu", "1GiB", "--max-split-size-mb", "-1", "--", "true"], 2),
    (["run", "--gpu", "1GiB", "--depth", "-1", "--", "true"], 2),
    (["run", "--gpu", "", "--", "true"], 2),
    (["run", "--gpu", "1GiB", "-o", "", "--", "true"], 2),
    (["replay", "--max-split-size-mb", "-1", "no-such-run"], 2),
    (["report", "--pid", "-1", "no-such-run"], 2),
    (["no-such-command"], 2),
    (["events"], 2),
])
def test_usage_errors_are_one_line(fragscope, arguments, code):
    done = fragscope(*arguments, cwd=fragscope.scratch)
    assert done.returncode == code
    assert done.stdout == b""
    one_line(done.stderr)
    assert not list(fragscope.scratch.iterdir())


def test_streams_are_byte_identical(fragscope):
    data = os.urandom(1 << 20)
    script = ["sh", "-c", "cat; echo to-stderr >&2; exit 3"]
    plain = subprocess.run(script, input=data, capture_output=True, check=False)
    for options in (["-q"], ["-q", "--no-record"]):
        run = fragscope.record(*script, options=options, input=data).finished
        assert (run.stdout, run.stderr, run.returncode) == (plain.stdout, plain.stderr, 3)


def test_own_words_go_to_stderr_and_q_silences_them(fragscope):
    command = fragscope.steps("alloc", 4096, "free")
    loud = fragscope.record(*command).finished
    quiet = fragscope.record(*command, options=["-q"]).finished
    assert loud.stdout == quiet.stdout == b"alloc 4096 -> error 0\nfree -> error 0\n"
    assert b"next: fragscope report" in loud.stderr
    assert b"on device 0: 4.00 KiB of CUDA\n" in loud.stderr
    assert quiet.stderr == b""


def test_words_of_the_command_are_left_alone(fragscope):
    words = ["--", "{}", "[]", "", "-o", "--gpu", "a b", "%%"]
    run = fragscope.record(sys.executable, "-c", "import sys; print(sys.argv[1:])", *words,
                           options=["-q"])
    assert run.finished.stdout.decode() == f"{words}\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1,
                                    signal.SIGUSR2])
def test_signals_to_the_parent_reach_the_command_once(fragscope, number):
    run = fragscope.start("run", "--gpu", "1GiB", "-q", "-o", fragscope.new_directory(), "--",
                          sys.executable, "-c", CATCHER)
    assert run.stdout.readline() == b"ready\n"
    run.send_signal(number)
    assert run.stdout.readline() == b"got %d\n" % number
    out, err = run.communicate(timeout=60)  # closes its standard input: it ends
    assert (out, err, run.returncode) == (b"", b"", 0)


def test_command_killed_by_a_passed_on_signal(fragscope):
    run = fragscope.start("run", "--gpu", "1GiB", "-q", "-o", fragscope.new_directory(), "--",
                          *fragscope.steps("alloc", 4096, "wait"))
    assert run.stdout.readline() == b"alloc 4096 -> error 0\n"
    assert run.stdout.readline() == b"waiting\n"
    run.terminate()
    assert run.wait(timeout=60) == 128 + signal.SIGTERM  # its standard input is still open


# A shell in small: the command is the foreground job of a terminal's session; each stop and the end
# are told on fd 3, a byte on fd 4 continues the job.
SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
ready, go = os.pipe()
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.setpgid(0, 0)
    os.read(ready, 1)
    os.execv(sys.argv[1], sys.argv[1:])
os.setpgid(pid, pid)
os.tcsetpgrp(0, pid)
os.write(go, b"x")
while True:
    status = os.waitpid(pid, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status):
        os.write(3, b"ended %d\\n" % os.waitstatus_to_exitcode(status))
        sys.exit(0)
    os.write(3, b"stopped\\n")
    os.read(4, 1)
    os.killpg(pid, signal.SIGCONT)
"""


class Terminal:
    """`fragscope run` as the foreground job of a shell on a terminal."""

    def __init__(self, fragscope, *command):
        arguments = [str(fragscope.path), "run", "--gpu", "1GiB", "-q", "-o",
                     str(fragscope.new_directory()), "--", *command]
        told, tell = os.pipe()
        wait, self.go = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # First out of the way: `wait` may be 3, `tell` 4.
            tell = fcntl.fcntl(tell, fcntl.F_DUPFD, 10)
            wait = fcntl.fcntl(wait, fcntl.F_DUPFD, 10)
            os.dup2(tell, 3)
            os.dup2(wait, 4)
            os.execve(sys.executable, [sys.executable, "-c", SHELL, *arguments],
                      fragscope.environment)
        os.close(tell)
        os.close(wait)
        self.told = os.fdopen(told, "rb")
        self.seen = b""

    def read_until(self, text):
        while text not in self.seen:
            self.seen += os.read(self.fd, 4096)

    def type(self, keys):
        os.write(self.fd, keys)


def test_interrupt_from_the_terminal_arrives_once(fragscope):
    terminal = Terminal(fragscope, sys.executable, "-c", CATCHER)
    terminal.read_until(b"ready")
    terminal.type(b"\x03")
    terminal.read_until(b"got 2")
    terminal.type(b"\x04")  # end of input
    assert terminal.told.readline() == b"ended 0\n"
    try:
        terminal.seen += os.read(terminal.fd, 4096)
    except OSError:
        pass  # EIO: nothing more
    assert terminal.seen.count(b"got 2") == 1


def test_stop_and_continue_from_the_terminal(fragscope):
    stopper = "import os; os.write(1, b'ready\\n'); os.read(0, 10); os.write(1, b'went on\\n')"
    terminal = Terminal(fragscope, sys.executable, "-c", stopper)
    terminal.read_until(b"ready")
    terminal.type(b"\x1a")
    assert terminal.told.readline() == b"stopped\n"
    os.write(terminal.go, b"x")
    terminal.type(b"x\n")
    terminal.read_until(b"went on")
    assert terminal.told.readline() == b"ended 0\n"


def test_output_into_a_fifo_and_closed_streams(fragscope, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE)
    with open(fifo, "wb") as sink:
        run = fragscope.start("run", "--gpu", "1GiB", "-o", fragscope.new_directory(), "--",
                              *fragscope.steps("alloc", 4096), stdout=sink, stderr=sink)
        assert run.wait(timeout=60) == 0
    out = reader.communicate(timeout=60)[0]
    assert out.startswith(b"alloc 4096 -> error 0\n") and b"recorded" in out
    closed = f'"{fragscope.path}" run --gpu 1GiB -o "$1" -- sh -c "exit 9" <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", closed, "sh", fragscope.new_directory()],
                          env=fragscope.environment, check=False)
    assert done.returncode == 9


@pytest.mark.parametrize("command", [
    ["bash", "-c", "echo $((6*7)); exit 4"],
    ["git", "--version"],
    [sys.executable, "-c", "import ctypes, json, subprocess; print(json.dumps([1]))"],
])
def test_commands_without_cuda_leave_no_trace(fragscope, command):
    plain = subprocess.run(command, capture_output=True, check=False)
    run = fragscope.record(*command, options=["-q"])
    done = run.finished
    assert (done.stdout, done.stderr, done.returncode) == (
        plain.stdout, plain.stderr, plain.returncode)
    assert [path.name for path in run.directory.iterdir()] == ["run.json"]
    loud = fragscope.record(*command)
    assert b"recorded nothing: no process of the command loaded CUDA's driver" in loud.finished.stderr
    info = fragscope("info", loud.directory)
    assert info.returncode == 5 and b"no events were recorded" in info.stderr


def test_no_gpu_is_a_clear_error(fragscope):
    hidden = fragscope("run", "-o", fragscope.new_directory(), "--", "true")
    if hidden.returncode == 0:
        pytest.skip("this machine has an NVIDIA driver")
    assert hidden.returncode == 125
    assert "--gpu" in one_line(hidden.stderr)


def test_the_users_preload_is_kept(fragscope):
    show = "import os; print(os.environ['LD_PRELOAD']); print(os.environ['LD_LIBRARY_PATH'])"
    run = fragscope.record(sys.executable, "-c", show, options=["-q"],
                           env={"LD_PRELOAD": "libm.so.6", "LD_LIBRARY_PATH": "/nowhere"})
    preload, path = run.finished.stdout.decode().splitlines()
    assert preload.split(":")[0].endswith("/lib/libfragscope.so")
    assert preload.split(":")[1] == "libm.so.6"
    assert path.endswith(":/nowhere") and "/lib/fragscope/sim:" in path


def test_no_environment_value_is_recorded(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 4096), env={"MY_TOKEN": "s3cr3t-v4lue"})
    for path in run.directory.iterdir():
        assert b"s3cr3t-v4lue" not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0
    assert run.directory.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("options, idle", [
    (("--alloc-conf", "backend:cudaMallocAsync", "--max-split-size-mb", "64"), "max_split_size_mb"),
    (("--alloc-conf", "backend:cudaMallocAsync,garbage_collection_threshold:0.8"), "garbage_collection_threshold"),
    (("--alloc-conf", "backend:cudaMallocAsync"), None),
    (("--max-split-size-mb", "64"), None),
])
def test_settings_that_cudas_own_allocator_does_not_know_are_named(fragscope, options, idle):
    said = fragscope.record("true", options=options).finished.stderr.decode()
    told = [line for line in said.splitlines() if "is CUDA's own allocator" in line]
    assert len(told) == (1 if idle else 0)
    assert idle is None or f"does not know {idle}:" in told[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make one")
def test_a_setuid_program_runs_without_us(fragscope, tmp_path):
    program = tmp_path / "who"
    shutil.copy(shutil.which("id"), program)
    os.chown(program, 65534, -1)
    program.chmod(0o4755)
    plain = subprocess.run([program], capture_output=True, check=True)
    if b"euid=65534" not in plain.stdout:
        pytest.skip("the file system takes no setuid programs")
    run = fragscope.record(program)
    assert (run.finished.stdout, run.finished.returncode) == (plain.stdout, 0)
    said = run.finished.stderr.decode().splitlines()
    assert all(line.startswith("fragscope: ") for line in said) and "setuid" in said[-1]
    assert not run.traces()


def test_after_a_refusal_the_next_command_is_explain(fragscope):
    words = ["run", "--gpu", "64MiB", "-o", fragscope.scratch / "r.fsr", "--", *fragscope.steps("alloc", 128 << 20)]
    assert b"next: fragscope explain" in fragscope(*words).stderr
