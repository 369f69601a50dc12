#!/usr/bin/env python3
"""Rewrites the tables of names below src/simcuda from the vendor's headers and our sources.

    make_tables.py CUDA12_INCLUDE CUDA13_INCLUDE

driver_procedures.def  (name, version) -> symbol, as cudaTypedefs.h names the ABIs
driver_stubs.def       exported symbols of cuda.h that no source implements
driver_twins.def       per-thread-stream twins of implemented functions
driver_errors.def      CUresult names and texts
runtime_stubs.def, runtime_twins.def, runtime_errors.def   the same for the runtime; twins are those
                       that the headers map to with --default-stream per-thread

Names of the newer major only are guarded. Nothing of the headers but names and numbers is kept.
"""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def preprocessed(include, header, macro):
    text = f"#define {macro}\n#include <{header}>\n"
    return subprocess.run(["g++", "-x", "c++", "-E", "-P", f"-I{include}", "-"], input=text,
                          capture_output=True, text=True, check=True).stdout


def symbols(include):
    return set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(",
                          preprocessed(include, "cuda.h", "__CUDA_API_VERSION_INTERNAL")))


def runtime_symbols(include):
    text = preprocessed(include, "cuda_runtime_api.h", "__CUDART_API_VERSION_INTERNAL")
    return set(re.findall(r"\bcudaError_t\s+(?:__attribute__\S+\s+)?(cuda[A-Z]\w*)\s*\(", text))


def runtime_twins(include):
    """The twins' names, of functions that the header also declares."""
    text = pathlib.Path(include, "cuda_runtime_api.h").read_text()
    return {name + "_" + kind.lower() for kind, name in
            re.findall(r"__CUDART_API_(PTDS|PTSZ)\((cuda\w+)\)", text)
            if name in runtime_symbols(include)}


def typedefs(include):
    text = pathlib.Path(include, "cudaTypedefs.h").read_text()
    return set(re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_pt(?:sz|ds))?\)", text))


def implemented(folder, pattern):
    names = set()
    for source in sorted((HERE / folder).glob("*.cpp")):
        names |= set(re.findall(pattern, source.read_text(), re.M))
    return names


def suffix_order(name):
    found = re.search(r"_v(\d+)$", name)
    return int(found.group(1)) if found else 1


def guarded(rows):
    """rows: (sort key, newest major only?, text)"""
    out, open_guard = [], False
    for _, newer, text in sorted(rows):
        if newer != open_guard:
            out.append("#if CUDA_VERSION >= 13000" if newer else "#endif")
            open_guard = newer
        out.append(text)
    if open_guard:
        out.append("#endif")
    return out


def write(path, comment, lines):
    (HERE / path).write_text("\n".join(["// Made by make_tables.py. " + comment] + lines) + "\n")


def procedures(all_symbols, versions):
    base = {}
    for name, version, twin in versions:
        base.setdefault(name, {}).setdefault(int(version), set()).add(twin)
    rows = []
    for name, by_version in base.items():
        plain = sorted((s for s in all_symbols if re.fullmatch(re.escape(name) + r"(_v\d+)?", s)),
                       key=suffix_order)
        numbers = sorted(v for v, twins in by_version.items() if "" in twins)
        twin_numbers = sorted(v for v, twins in by_version.items() if twins - {""})
        for back, version in enumerate(reversed(numbers)):
            if back >= len(plain):
                break
            symbol = plain[-1 - back]
            twins = [s for s in (symbol + "_ptsz", symbol + "_ptds") if s in all_symbols]
            rows.append((name, version, symbol, twins[0] if twins and twin_numbers else None))
    return rows


def main():
    include12, include13 = sys.argv[1:3]
    old, new = symbols(include12), symbols(include13)
    everything = old | new
    ours = implemented("driver", r"CUDAAPI (cu[A-Z]\w*)\(")
    twins = {s for s in everything if re.sub(r"_pt(?:sz|ds)$", "", s) in ours and s not in ours and
             re.search(r"_pt(?:sz|ds)$", s)}
    write("driver/driver_stubs.def", "STUB(symbol)",
          guarded([(s, s not in old, f"STUB({s})") for s in everything - ours - twins]))
    write("driver/driver_twins.def", "TWIN(symbol, what it is with the per-thread stream)",
          guarded([(s, s not in old, "TWIN(%s, %s)" % (s, re.sub(r"_pt(?:sz|ds)$", "", s)))
                   for s in twins]))
    rows = []
    for name, version, symbol, twin in procedures(everything,
                                                  typedefs(include12) | typedefs(include13)):
        newer = symbol not in old or (twin is not None and twin not in old)
        text = f"PROCEDURE({name}, {version}, {symbol})"
        if twin:
            text = f"PROCEDURE_PER_THREAD({name}, {version}, {symbol}, {twin})"
        rows.append(((name, version), newer, text))
    write("driver/driver_procedures.def",
          "PROCEDURE(name, first version, symbol), PROCEDURE_PER_THREAD(…, per-thread twin)",
          guarded(rows))
    errors(include12, include13)
    runtime(include12, include13)


def enum_names(include, header, prefix):
    text = preprocessed(include, header, "__UNUSED")
    return re.findall(r"\b(%s\w*)\s*=\s*\d+" % prefix, text)


def phrase(name):
    """CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation -> words, where no text is known."""
    if name.startswith("CUDA_ERROR_"):
        return name[len("CUDA_ERROR_"):].lower().replace("_", " ")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name[len("cudaError"):]).lower()


# Texts that programs match or people know by heart; the rest are the words of the name.
TEXTS = {
    "CUDA_SUCCESS": "no error", "cudaSuccess": "no error",
    "CUDA_ERROR_INVALID_VALUE": "invalid argument", "cudaErrorInvalidValue": "invalid argument",
    "CUDA_ERROR_OUT_OF_MEMORY": "out of memory", "cudaErrorMemoryAllocation": "out of memory",
    "CUDA_ERROR_NOT_INITIALIZED": "initialization error",
    "cudaErrorInitializationError": "initialization error",
    "CUDA_ERROR_DEINITIALIZED": "driver shutting down",
    "cudaErrorCudartUnloading": "driver shutting down",
    "CUDA_ERROR_NO_DEVICE": "no CUDA-capable device is detected",
    "cudaErrorNoDevice": "no CUDA-capable device is detected",
    "CUDA_ERROR_INVALID_DEVICE": "invalid device ordinal",
    "cudaErrorInvalidDevice": "invalid device ordinal",
    "CUDA_ERROR_INVALID_CONTEXT": "invalid device context",
    "cudaErrorDeviceUninitialized": "invalid device context",
    "CUDA_ERROR_INVALID_HANDLE": "invalid resource handle",
    "cudaErrorInvalidResourceHandle": "invalid resource handle",
    "CUDA_ERROR_NOT_FOUND": "named symbol not found",
    "cudaErrorSymbolNotFound": "named symbol not found",
    "CUDA_ERROR_NOT_READY": "device not ready", "cudaErrorNotReady": "device not ready",
    "CUDA_ERROR_NOT_SUPPORTED": "operation not supported",
    "cudaErrorNotSupported": "operation not supported",
    "CUDA_ERROR_UNKNOWN": "unknown error", "cudaErrorUnknown": "unknown error",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "operation not permitted when stream is capturing",
    "cudaErrorStreamCaptureUnsupported": "operation not permitted when stream is capturing",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED":
        "operation failed due to a previous error during capture",
    "cudaErrorStreamCaptureInvalidated": "operation failed due to a previous error during capture",
    "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED":
        "part or all of the requested memory range is already mapped",
    "cudaErrorHostMemoryAlreadyRegistered":
        "part or all of the requested memory range is already mapped",
    "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED":
        "pointer does not correspond to a registered memory region",
    "cudaErrorHostMemoryNotRegistered": "pointer does not correspond to a registered memory region",
    "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED": "peer access is already enabled",
    "cudaErrorPeerAccessAlreadyEnabled": "peer access is already enabled",
    "cudaErrorInvalidDeviceFunction": "invalid device function",
    "cudaErrorInsufficientDriver": "CUDA driver version is insufficient for CUDA runtime version",
}


def errors(include12, include13):
    for header, prefix, path, guard in (("cuda.h", "CUDA_(?:ERROR_|SUCCESS)", "driver/driver", ""),
                                        ("driver_types.h", "cuda(?:Error[A-Z]|Success)",
                                         "runtime/runtime", "RT")):
        old = enum_names(include12, header, prefix)
        new = enum_names(include13, header, prefix)
        rows = []
        for place, name in enumerate(dict.fromkeys(old + new)):
            text = TEXTS.get(name, phrase(name))
            side = "" if name in old and name in new else "12" if name in old else "13"
            rows.append((place, side, f'ERROR_NAME({name}, "{text}")'))
        lines = []
        for _, side, text in rows:
            version = "CUDART_VERSION" if guard else "CUDA_VERSION"
            sign = {"12": "<", "13": ">="}.get(side)
            lines += [f"#if {version} {sign} 13000", text, "#endif"] if sign else [text]
        (HERE / path).parent.mkdir(exist_ok=True)
        write(path + "_errors.def", "ERROR_NAME(enumerator, text)", lines)


def runtime(include12, include13):
    old, new = runtime_symbols(include12), runtime_symbols(include13)
    ours = implemented("runtime", r"CUDARTAPI\s+(cuda[A-Z]\w*)\(")
    write("runtime/runtime_stubs.def", "STUB(symbol)",
          by_major([(name, f"STUB({name})") for name in (old | new) - ours], old, new))
    old_twins, new_twins = runtime_twins(include12), runtime_twins(include13)
    twins = (old_twins | new_twins) - ours
    write("runtime/runtime_twins.def", "TWIN(symbol, what it is with the per-thread stream)",
          by_major([(name, "TWIN(%s, %s)" % (name, name.rpartition("_")[0])) for name in twins],
                   old_twins, new_twins))


def by_major(rows, old, new):
    """rows: (name, text); those of one major only are guarded."""
    lines = []
    for name, text in sorted(rows):
        sign = None if name in old and name in new else "<" if name in old else ">="
        lines += [f"#if CUDART_VERSION {sign} 13000", text, "#endif"] if sign else [text]
    return lines


if __name__ == "__main__":
    main()
