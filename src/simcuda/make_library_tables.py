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


def main():
    dnn(pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
