"""The allocator libraries of torch releases, and the oracle program built against each.

A release's `libc10.so`, `libc10_cuda.so` and `include/c10` come from an installed torch of that
release, or from its wheel (downloaded once, everything else thrown away). The program is rebuilt
when a source is newer. Nothing here runs CUDA: the stand-ins of build/<preset>/lib/fragscope/sim do.
"""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from typing import List, NamedTuple, Optional

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "fragscope"
BUILD = pathlib.Path(os.environ.get("FRAGSCOPE_BUILD") or ROOT / "build" / "release").resolve()
SIM = BUILD / "lib" / "fragscope" / "sim"
# Environments that may hold an installed torch.
VENVS = [pathlib.Path(place) for place in (os.environ.get("FRAGSCOPE_TORCH_VENV"), sys.prefix) if place]
VENVS += [CACHE / "torch-venv", CACHE / "torch26-venv"]

# The patch release taken for each minor one.
RELEASES = {"2.1": "2.1.2", "2.2": "2.2.2", "2.3": "2.3.1", "2.4": "2.4.1", "2.5": "2.5.1",
            "2.6": "2.6.0", "2.7": "2.7.1", "2.8": "2.8.0", "2.9": "2.9.1", "2.10": "2.10.0",
            "2.11": "2.11.0", "2.12": "2.12.0", "2.13": "2.13.0", "2.14": "2.14.0",
            "2.15": "2.15.0"}
KEPT = re.compile(r"torch/(lib/libc10(_cuda)?\.so|include/(c10|torch/headeronly)/.*|version\.py)$")
# The pinned host allocator is in libtorch_cuda.so: what a program that links it needs besides.
KEPT_FOR_HOST = re.compile(r"(torch/(lib/lib(torch_cuda|torch_cpu|torch_nvshmem|gomp[^/]*|gfortran[^/]*|cudart[^/]*)\.so[^/]*"
                           r"|include/(ATen|torch/csrc)(/.*|\.h))|[^/]*\.libs/.*)$")


class OracleError(Exception):
    """One line for the user."""


class Torch(NamedTuple):
    version: str  # "2.6"
    root: pathlib.Path  # holds lib/ and include/
    cuda_major: int
    old_abi: bool


def describe(version: str, root: pathlib.Path) -> Torch:
    needed = subprocess.run(["readelf", "-d", str(root / "lib" / "libc10_cuda.so")],
                            stdout=subprocess.PIPE, text=True, check=True).stdout
    major = re.search(r"libcudart\.so\.(\d+)", needed)
    if major is None:
        raise OracleError(f"torch {version} is no CUDA build")
    symbols = subprocess.run(["nm", "-D", str(root / "lib" / "libc10.so")],
                             stdout=subprocess.PIPE, text=True, check=True).stdout
    old_abi = re.search(r"torchInternalAssertFail\w*RKSs\b", symbols) is not None
    return Torch(version, root, int(major.group(1)), old_abi)


def installed(version: str) -> Optional[pathlib.Path]:
    for venv in VENVS:
        for root in venv.glob("lib/python3.*/site-packages/torch"):
            if not (root / "version.py").exists():
                continue
            text = (root / "version.py").read_text(encoding="utf-8")
            if re.search(rf"__version__ = '{re.escape(version)}\.", text) and (root / "lib/libc10_cuda.so").exists():
                return root
    return None


def downloaded(version: str, host: bool) -> pathlib.Path:
    target = CACHE / "oracle" / "wheels" / version
    if (target / "torch" / "lib" / ("libtorch_cuda.so" if host else "libc10_cuda.so")).exists():
        return target / "torch"
    print(f"oracle: downloading torch {RELEASES[version]} (only its allocators are kept)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
                        "--python-version", "3.11", "--dest", scratch, f"torch=={RELEASES[version]}"], check=True)
        wheel = next(pathlib.Path(scratch).glob("*.whl"))
        unpacked = pathlib.Path(scratch) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if KEPT.match(name) or (host and KEPT_FOR_HOST.match(name)):
                    archive.extract(name, unpacked)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        unpacked.rename(target)
    return target / "torch"


def find(version: str, host: bool = False) -> Torch:
    """`host`: with what the pinned host allocator needs, about 1.3 GB."""
    if version not in RELEASES:
        raise OracleError(f"no oracle for torch {version}; known: {', '.join(RELEASES)}")
    return describe(version, installed(version) or downloaded(version, host))


def newest_installed() -> Optional[str]:
    for version in reversed(RELEASES):
        if installed(version) is not None:
            return version
    return None


def cuda_include(major: int) -> pathlib.Path:
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8") if (BUILD / "CMakeCache.txt").exists() else ""
    named = re.search(rf"^FRAGSCOPE_CUDA{major}_INCLUDE:PATH=(.+)$", cache, re.MULTILINE)
    places = [pathlib.Path(named.group(1))] if named else []
    places += [CACHE / "cuda-headers" / str(major) / "include", pathlib.Path("/usr/local/cuda/include")]
    for place in places:
        header = place / "cuda.h"
        if header.exists() and re.search(rf"#define CUDA_VERSION {major}\d\d\d", header.read_text(errors="replace")):
            return place
    raise OracleError(f"no CUDA {major} headers: run tools/setup.sh")


def newer_than(target: pathlib.Path, sources: List[pathlib.Path]) -> bool:
    return not target.exists() or any(source.stat().st_mtime > target.stat().st_mtime for source in sources)


def compile_all(sources: List[pathlib.Path], folder: pathlib.Path, flags: List[str]) -> List[str]:
    """Objects of `sources`; those that are out of date are compiled, one job per CPU."""
    headers = [p for part in ("src/base", "src/model", "tests/oracle", "tests/support") for p in (ROOT / part).glob("*.h")]
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "flags"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != " ".join(flags):
        for target in folder.glob("*.o"):
            target.unlink()
        stamp.write_text(" ".join(flags), encoding="utf-8")
    compiler = ["ccache", "g++"] if shutil.which("ccache") else ["g++"]
    jobs, objects = [], []
    for source in sources:
        target = folder / (source.name + ".o")
        objects.append(str(target))
        if newer_than(target, [source, *headers]):
            jobs.append(compiler + flags + ["-c", str(source), "-o", str(target)])
    running: List[subprocess.Popen] = []
    while jobs or running:
        while jobs and len(running) < (os.cpu_count() or 1):
            running.append(subprocess.Popen(jobs.pop()))
        if running.pop(0).wait() != 0:
            for process in running:
                process.wait()
            raise OracleError("the oracle does not compile")
    return objects


def build(torch: Torch, host: bool = False) -> pathlib.Path:
    """The oracle program of a release; built if it is out of date. `host`: linked to libtorch_cuda."""
    folder = BUILD / "oracle"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_locked(torch, folder, host)


def needed_libraries(library: pathlib.Path) -> List[str]:
    text = subprocess.run(["readelf", "-d", str(library)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def version_needs(library: pathlib.Path) -> List[tuple]:
    """(file, version node) pairs that a library asks for."""
    text = subprocess.run(["readelf", "-V", "-W", str(library)], stdout=subprocess.PIPE, text=True, check=True).stdout
    pairs, file = [], ""
    for line in text.splitlines():
        if found := re.search(r"File: (\S+)", line):
            file = found.group(1)
        elif file and (found := re.search(r"Name: (\S+)", line)):
            pairs.append((file, found.group(1)))
    return pairs


def make_filler(target: pathlib.Path, nodes: dict) -> None:
    """A library of that name whose functions do nothing, under the version nodes that are asked for."""
    source = target.with_suffix(".c")
    functions = sorted({name for names in nodes.values() for name in names})
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in functions), encoding="utf-8")
    script = target.with_suffix(".map")
    script.write_text("".join(f"{node} {{ {' '.join(name + ';' for name in names)} }};\n" for node, names in nodes.items()),
                      encoding="utf-8")
    versions = [f"-Wl,--version-script,{script}"] if nodes else []
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", str(target), f"-Wl,-soname,{target.name}",
                    *versions, str(source)], check=True)


def make_fillers(torch: Torch, folder: pathlib.Path) -> None:
    """Stand-ins for what libtorch_cuda needs and the pinned allocator never calls (cuDNN, NCCL, …)."""
    if folder.exists():
        return
    scratch = folder.with_suffix(".new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    here = {path.name for path in (torch.root / "lib").iterdir()} | {path.name for path in SIM.iterdir()}
    system = re.compile(r"(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|util)\.so|ld-linux)")
    parts = [path for path in (torch.root / "lib").glob("libtorch_*.so") if "python" not in path.name]
    wanted = {name for part in parts for name in needed_libraries(part)} - here
    needs = {pair for part in parts for pair in version_needs(part)}
    undefined = subprocess.run(["nm", "-D", "--undefined-only", "--with-symbol-versions", *map(str, parts)],
                               stdout=subprocess.PIPE, text=True, check=True).stdout
    for name in wanted:
        if system.match(name):
            continue
        nodes = {node: sorted(set(re.findall(rf" (\w+)@{re.escape(node)}\b", undefined)))
                 for file, node in sorted(needs) if file == name}
        make_filler(scratch / name, nodes)
    scratch.rename(folder)


def build_locked(torch: Torch, folder: pathlib.Path, host: bool) -> pathlib.Path:
    runtime = f"libcudart.so.{torch.cuda_major}"
    if not (SIM / runtime).exists():
        raise OracleError(f"{SIM / runtime} is missing: build first (make)")
    abi = 0 if torch.old_abi else 1
    common = ["-std=c++20", "-O1", "-fPIC", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
              f"-I{ROOT / 'src'}", f"-I{ROOT}"]
    model = sorted((ROOT / "src/model").glob("*.cpp")) + [ROOT / "src/base/bytes.cpp", ROOT / "src/base/format_size.cpp"]
    objects = compile_all(model, folder / f"model-abi{abi}", common)
    own = common + [f'-DORACLE_TORCH="{torch.version}"', f"-DORACLE_MINOR={torch.version.split('.')[1]}"]
    own += ["-DORACLE_HOST"] if host else []
    own += ["-isystem", str(torch.root / "include"),
                    "-isystem", str(cuda_include(torch.cuda_major))]
    place = folder / (torch.version + ("-host" if host else ""))
    sources = sorted((ROOT / "tests/oracle").glob("*.cpp"))
    if not host:
        sources.remove(ROOT / "tests/oracle/host_calls.cpp")
    objects += compile_all(sources, place, own)
    program = place / "oracle"
    more, path = [], f"{SIM}:{torch.root / 'lib'}"
    if host:
        make_fillers(torch, place / "fillers")
        more = ["-Wl,--no-as-needed", "-ltorch_cuda", "-ltorch_cpu"]
        path += f":{place / 'fillers'}"
    if newer_than(program, [pathlib.Path(o) for o in objects]):
        link = ["g++", *objects, "-o", str(program), f"-L{SIM}", f"-l:{runtime}", f"-L{torch.root / 'lib'}",
                *more, "-lc10_cuda", "-lc10", "-rdynamic", "-Wl,--allow-shlib-undefined",
                f"-Wl,--disable-new-dtags,-rpath,{path}"]
        if subprocess.run(link, check=False).returncode != 0:
            raise OracleError("the oracle does not link")
    return program


def environment(settings: str, program: Optional[pathlib.Path] = None) -> dict:
    result = dict(os.environ)
    result["LD_LIBRARY_PATH"] = str(SIM)
    if program is not None and (program.parent / "fillers").exists():
        result["LD_LIBRARY_PATH"] += f":{program.parent / 'fillers'}"
    result["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    result.pop("PYTORCH_ALLOC_CONF", None)
    result["PYTORCH_CUDA_ALLOC_CONF"] = settings
    return result
