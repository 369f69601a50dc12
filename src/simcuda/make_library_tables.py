#!/usr/bin/env python3
"""Rewrites the tables of the vendor's other libraries from their headers and our sources.

    make_library_tables.py TORCH_SITE_PACKAGES

TORCH_SITE_PACKAGES holds nvidia/…/include as the wheels that torch requires install it. Kept of the
headers are names, and of outputs that the host reads their place and size; see library_stubs.h for
the form of a row. dnn/cudnn_functions.def lists what cuDNN's headers declare and no source defines.
"""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent

# cuDNN functions that issue device work on their handle's stream, or fill a descriptor.
DNN_WORK = r"cudnn(Convolution\w*(Forward|BackwardData|BackwardFilter)|BatchNormalization\w*|CTCLoss\w*|" \
           r"RNNForward|RNNBackward\w+|PoolingForward|SpatialTf\w+)"
DNN_ACCEPT = r"cudnnSet(Convolution(Nd|MathType)\w*|Activation\w+|CTCLoss\w+|Pooling2d\w+|SpatialTransformer\w+)"


def preprocessed(header, includes):
    command = ["g++", "-x", "c++", "-E", "-P", *(f"-I{i}" for i in includes), "-"]
    return subprocess.run(command, input=f"#include <{header}>\n", capture_output=True, text=True,
                          check=True).stdout


def prototypes(text, prefix):
    """name -> (return type, [parameter types])"""
    found = {}
    for match in re.finditer(r"([\w\s\*]+?)\b(" + prefix + r"[A-Z]\w*)\s*\(([^()]*)\)\s*;", text):
        result = re.sub(r"__attribute__\S*|extern|\"C\"", "", match[1]).split("}")[-1].split(";")[-1]
        found[match[2]] = (" ".join(result.split()), [" ".join(p.split()) for p in match[3].split(",")])
    return found


def defined(folder):
    names = set()
    for source in sorted((HERE / folder).glob("*.cpp")):
        text = source.read_text()
        names |= set(re.findall(r"_EXPORT\s+[\w\s\*]+?(\w+)\(", text))
        for kind in re.findall(r"^DNN_DESCRIPTOR\((\w+),", text, re.M):
            names |= {f"cudnnCreate{kind}Descriptor", f"cudnnDestroy{kind}Descriptor"}
    return names


def write(path, lines):
    (HERE / path).write_text("// Made by make_library_tables.py.\n" + "\n".join(lines) + "\n")


def dnn(site):
    text = preprocessed("cudnn.h", [site / "nvidia/cudnn/include", site / "nvidia/cu13/include"])
    rows = []
    for name, (result, parameters) in sorted(prototypes(text, "cudnn").items()):
        if name in defined("dnn") or result != "cudnnStatus_t":
            continue
        kind = "WORK" if re.fullmatch(DNN_WORK, name) and "cudnnHandle_t" in parameters[0] else \
               "ACCEPT" if re.fullmatch(DNN_ACCEPT, name) else "UNSUPPORTED"
        rows.append(f"DNN_{kind}({name})")
    write("dnn/cudnn_functions.def", rows)


# --- math/: cuSOLVER and cuSPARSE ---

FLOATING = {"float", "double", "cuComplex", "cuDoubleComplex", "cuFloatComplex"}
NUMBERS = {"int": 4, "int32_t": 4, "unsigned": 4, "unsigned int": 4, "size_t": 8, "int64_t": 8,
           "uint64_t": 8, "long": 8, "long long": 8, "void *": 8, "const void *": 8}
ANSWERS = r"Get|Size|Estimation|Info"  # functions whose enumerations and pointers are outputs


def enumerations(text):
    return set(re.findall(r"}\s*(\w+_t)\s*;", "\n".join(re.findall(
        r"typedef\s+enum[^{}]*\{[^{}]*\}\s*\w+_t\s*;", text))))


def split(parameter):
    """(type, stars) without names and qualifiers of pointers"""
    text = re.sub(r"\bconst\s*\*", "*", parameter)
    stars = text.count("*") + text.count("[")
    base = re.split(r"[\*\[]", text)[0].split()
    if stars == 0 and len(base) > 1:
        base = base[:-1]  # the parameter's name
    elif stars and "[" in text and "*" not in text and len(base) > 1:
        base = base[:-1]
    return " ".join(base), stars


def outputs(name, parameters, enums):
    found, position = [], 0
    for parameter in parameters:
        base, stars = split(parameter)
        if stars == 0 and base in FLOATING:
            continue
        position += 1
        constant = base.startswith("const ")
        if stars == 1 and not constant and base in NUMBERS:
            found.append((position, NUMBERS[base]))
        elif stars == 1 and not constant and re.search(ANSWERS, name) and base in enums:
            found.append((position, 4))
        elif stars == 2 and re.search(ANSWERS, name):
            found.append((position, 8))
    return found


def row(name, parameters, enums):
    if re.search(r"(SetStream|GetStream)$", name):
        return f"LIBRARY_{'SET' if 'Set' in name else 'GET'}_STREAM({name})"
    base, stars = split(parameters[0])
    if re.search(r"[cC]reate", name) and stars == 1 and re.search(r"(_t|Info_t)$", base):
        return f"LIBRARY_CREATE({name})"
    if re.search(r"[dD]estroy", name):
        return f"LIBRARY_DESTROY({name})"
    handle = stars == 0 and re.fullmatch(r"cu\w+Handle_t", base)
    # Sizes are asked on the host; settings are kept nowhere.
    work = handle and not re.search(r"[sS]ize$|BufferSize|bufferSize|Get|Set|Estimation", name)
    listed = "".join(f", FS_OUTPUT({p}, {b})" for p, b in outputs(name, parameters, enums))
    return f"LIBRARY_CALL({name}, {'true' if work else 'false'}{listed})"


def math(site, header, prefix, status, path):
    text = preprocessed(header, [site / "nvidia/cu13/include"])
    enums = enumerations(text)
    names = prototypes(text, prefix)
    write(path, [row(name, parameters, enums) for name, (result, parameters) in sorted(names.items())
                 if result == status])


def main():
    site = pathlib.Path(sys.argv[1])
    dnn(site)
    math(site, "cusolverDn.h", "cusolverDn", "cusolverStatus_t", "math/cusolver.def")
    math(site, "cusparse.h", "cusparse", "cusparseStatus_t", "math/cusparse.def")


if __name__ == "__main__":
    main()
