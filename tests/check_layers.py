#!/usr/bin/env python3
"""Fails where an include points up a layer, a third-party header is outside the files meant for it,
or a source is in no meson.build.

    tests/check_layers.py              checks the tree
    tests/check_layers.py --sizes      and lists the ten largest files
    tests/check_layers.py --self-test  checks this check
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ["framework/core", "framework/runtime", "framework/memory", "framework/tensor",
          "framework/random", "framework/data", "ops", "autograd", "nn", "graphs"]
SUFFIXES = {".h", ".cpp", ".cuh", ".cu"}

CUDA_FILES = re.compile(r"framework/runtime/(cuda_|library_handles)|ops/gpu/"
                        r"|framework/random/philox_state\.cu$")
THIRD_PARTY = {  # what an include looks like, which files may have it
    "CUDA": (re.compile(r"cuda|cublas|cudnn|curand|nvtx|nvrtc|cub/|thrust/|cooperative_groups"
                        r"|math_constants\.h|mma\.h|device_launch|driver_types|vector_types"),
             CUDA_FILES),
    "Eigen": (re.compile(r"Eigen/|unsupported/Eigen"), re.compile(r"ops/cpu/")),
    "zlib": (re.compile(r"zlib\.h|zconf\.h"), re.compile(r"framework/data/.*\.cpp$|tests/")),
    "doctest": (re.compile(r"doctest"), re.compile(r"tests/")),
}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def rank(path):
    """Position of a path's layer, or None for a path in no layer."""
    for position, layer in enumerate(LAYERS):
        if path.startswith(layer + "/"):
            return position
    return None


def fault(path, quote, included):
    """What is wrong with `path` including `included`, or None."""
    if quote == "<":
        for name, (pattern, allowed) in THIRD_PARTY.items():
            if pattern.match(included) and not allowed.match(path):
                return f"{name} header <{included}> does not belong here"
        private = CUDA_FILES.match(path) or path.startswith(("ops/cpu/", "examples/", "tests/"))
        if path.endswith(".h") and not private and not re.fullmatch(r"\w+", included):
            return f"public header includes <{included}>, which is not the standard library's"
        return None
    if path.startswith("tests/"):
        return None
    if path.startswith("examples/"):
        if included == "capstan.h" or included.startswith("examples/support/"):
            return None
        return f'examples see "capstan.h" and "examples/support/" alone, not "{included}"'
    if rank(included) is None:
        return f'"{included}" is not the path of a file in a layer'
    if CUDA_FILES.match(included) and not CUDA_FILES.match(path):
        return f'"{included}" is for the CUDA files alone'
    if included.endswith(".cuh") and not path.endswith((".cu", ".cuh")):
        return f'"{included}" needs nvcc'
    if path != "capstan.h" and rank(included) > rank(path):
        return f'"{included}" lies in a higher layer'
    return None


def sources():
    """Path and lines of every source file."""
    tops = ["framework", *LAYERS[6:], "examples", "tests"]
    files = [ROOT / "capstan.h", *(file for top in tops for file in sorted((ROOT / top).rglob("*")))]
    for file in files:
        if file.suffix in SUFFIXES:
            yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8").splitlines()


def is_built(path):
    """True for a source that the nearest meson.build above it names; programs go by their stem."""
    source = ROOT / path
    folder = next(up for up in source.parents if (up / "meson.build").exists())
    names = (folder / "meson.build").read_text(encoding="utf-8")
    listed = source.relative_to(folder)
    return f"'{listed.as_posix()}'" in names or f"'{listed.with_suffix('').as_posix()}'" in names


def check_tree():
    count, faults = 0, []
    for path, lines in sources():
        count += 1
        if path.endswith((".cpp", ".cu")) and not is_built(path):
            faults.append(f"{path}: no meson.build names it")
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            complaint = fault(path, *match.groups()) if match else None
            if complaint:
                faults.append(f"{path}:{number}: {complaint}")
    print("\n".join(faults) if faults else f"layers: {count} files in order")
    return bool(faults)


def self_test():
    """Each row: file, include, whether it must be refused."""
    rows = [
        ("framework/core/shape.h", "<vector>", False),
        ("framework/core/shape.h", "<unistd.h>", True),
        ("framework/core/error.cpp", '"framework/tensor/tensor.h"', True),
        ("framework/tensor/tensor.cpp", '"framework/core/error.h"', False),
        ("framework/memory/block_pool.h", '"framework/tensor/storage.h"', True),
        ("framework/random/generator.cpp", '"framework/tensor/write_journal.h"', False),
        ("framework/data/idx.cpp", "<zlib.h>", False),
        ("framework/data/idx.h", "<zlib.h>", True),
        ("examples/support/terminal.h", "<unistd.h>", False),
        ("examples/support/terminal.h", "<cuda_runtime.h>", True),
        ("ops/reduce.h", '"autograd/node.h"', True),
        ("ops/reduce.cpp", "<Eigen/Core>", True),
        ("ops/cpu/matmul.cpp", "<Eigen/Core>", False),
        ("ops/reduce.cpp", "<cuda_runtime.h>", True),
        ("ops/gpu/reduce.cu", "<cuda_runtime.h>", False),
        ("ops/gpu/reduce.cu", '"framework/runtime/cuda_check.h"', False),
        ("ops/reduce.cpp", '"framework/runtime/cuda_check.h"', True),
        ("ops/reduce.cpp", '"ops/gpu/launch.cuh"', True),
        ("nn/linear.cpp", '"graphs/graph.h"', True),
        ("nn/linear.cpp", '"linear.h"', True),
        ("graphs/graph.cpp", '"nn/module.h"', False),
        ("graphs/graph.cpp", '"capstan.h"', True),
        ("examples/mlp.cpp", '"capstan.h"', False),
        ("examples/mlp.cpp", '"nn/module.h"', True),
        ("tests/nn/linear_test.cpp", '"graphs/graph.h"', False),
        ("tests/nn/linear_test.cpp", "<doctest/doctest.h>", False),
    ]
    wrong = [f"{path} including {included}: refused is {not refused}, expected {refused}"
             for path, included, refused in rows
             if bool(fault(path, *INCLUDE.match("#include " + included).groups())) != refused]
    print("\n".join(wrong) if wrong else f"layer check: {len(rows)} examples judged as expected")
    return bool(wrong)


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if arguments not in ([], ["--sizes"]):
        sys.exit(__doc__)
    if arguments:
        for lines, path in sorted(((len(text), path) for path, text in sources()), reverse=True)[:10]:
            print(f"{lines:6} {path}")
    return check_tree()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
