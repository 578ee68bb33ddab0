#!/usr/bin/env python3
"""Fails where a source waits for a device, asks it, or copies to or from the host without this list
knowing of it, or where a row of the table of refusals (framework/runtime/forbidden.h) is not used.

    tests/check_refusals.py              checks the tree
    tests/check_refusals.py --self-test  checks this check

A new call of this kind is either part of an entry point, which then needs an enumerator, a row and
a test (tests/graphs/forbidden_test.cpp), or internal to the library and harmless to a capture. Raise
the count of the file below once it is settled which, with the reason.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["framework", "ops", "autograd", "nn", "graphs"]
SUFFIXES = {".h", ".cpp", ".cuh", ".cu"}
TABLE = "framework/runtime/forbidden.h"

# The runtimes themselves; every call comes through DeviceRuntime.
RUNTIMES = re.compile(r"framework/runtime/(runtime\.h|(cpu|cuda|emulated)_\w+\.(h|cpp))$")

WAITS = re.compile(r"(?:\.|->)(synchronize_stream|synchronize_device|synchronize_event|stream_done"
                   r"|event_done|elapsed_ms)\(")
COPIES = re.compile(r"runtime(?:\(\w+\))?(?:\.|->)copy\(")
CUDA_WAITS = re.compile(r"\bcuda(\w*Synchronize|StreamQuery|EventQuery|EventElapsedTime"
                        r"|Memcpy(?!Async|Kind|Default|HostToDevice|DeviceTo)\w*|Memset)\(")

ALLOWED = {
    # Entry points, each of which begins with refuse_while_capturing.
    "framework/runtime/stream.cpp": 3,
    "framework/runtime/event.cpp": 3,
    "framework/tensor/transfer.cpp": 2,
    "framework/tensor/host_values.cpp": 2,
    "framework/tensor/tensor.cpp": 3,
    # Internal: on streams of their own, or of streams that do not capture.
    "framework/runtime/faults.cpp": 1,
    "framework/runtime/library_handles.cpp": 2,
    "framework/random/generator.cpp": 1,
    "framework/memory/caching_allocator.cpp": 2,  # no capture is in progress then
    "framework/memory/memory_limits.cpp": 1,      # likewise
    "framework/memory/deferred_frees.cpp": 1,     # of events that no capture recorded
    "framework/memory/pinned_allocator.cpp": 1,   # likewise
    "graphs/replay_order.cpp": 1,
    # Within the device.
    "framework/tensor/write_journal.cpp": 1,
}


def calls(line):
    code = line.split("//")[0]
    return sum(len(pattern.findall(code)) for pattern in (WAITS, COPIES, CUDA_WAITS))


def sources():
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in SUFFIXES:
                yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def enumerators(header):
    body = re.search(r"enum class Forbidden[^{]*\{(.*?)\}", header, re.S).group(1)
    return re.findall(r"^\s*(\w+),", body, re.M)


def faults_of(texts, allowed):
    """What is wrong, one line each; `texts` are pairs of path and text."""
    found, used, rows = collections.Counter(), collections.Counter(), []
    for path, text in texts:
        if path == TABLE:
            rows = enumerators(text)
        if not path.startswith(TABLE.removesuffix("h")):
            used.update(re.findall(r"\bForbidden::(\w+)", text))
        if not RUNTIMES.match(path):
            found[path] += sum(calls(line) for line in text.splitlines())
    faults = [f"{path}: {found[path]} calls that wait, ask or copy, {allowed.get(path, 0)} known"
              for path in sorted(found.keys() | allowed.keys())
              if found[path] != allowed.get(path, 0)]
    faults += [f"{TABLE}: no entry point refuses with {row}" for row in rows if not used[row]]
    return faults


def check_tree():
    faults = faults_of(sources(), ALLOWED)
    print("\n".join(faults) + "\nsee the head of tests/check_refusals.py" if faults
          else f"refusals: {sum(ALLOWED.values())} calls known, every row used")
    return bool(faults)


def self_test():
    """Each row: a line of a source, whether it must be counted."""
    rows = [
        ("state_->runtime.synchronize_stream(*state_);", True),
        ("runtime(device).synchronize_device();", True),
        ("return runtime(device_).event_done(native_);", True),
        ("owner.synchronize_stream(stream.state());", True),
        ("stream.runtime.copy(bytes.data(), x.raw_data(), bytes.size(), stream);", True),
        ("runtime(device)->copy(to, from, bytes, stream);", True),
        ("CAPSTAN_CUDA_CHECK(cudaStreamSynchronize(stream));", True),
        ("cudaDeviceSynchronize();", True),
        ("cudaMemcpy(to, from, bytes, cudaMemcpyDefault);", True),
        ("cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);", False),
        ("// then runtime.synchronize_device() waits", False),
        ("ops::copy(entry.inputs[i], inputs[i]);", False),
        ("synchronize(device);", False),
        ("scope.finish();", False),
    ]
    wrong = [f"{line}: counted is {not counted}, expected {counted}"
             for line, counted in rows if bool(calls(line)) != counted]
    table = (TABLE, "enum class Forbidden : std::uint8_t {\n  item,\n  print,\n};")
    user = ("nn/a.cpp", "refuse_while_capturing(d, Forbidden::item);\nr.synchronize_device();")
    if len(faults_of([table, user], {})) != 2:
        wrong.append("a row without a use and a wait that is not listed are two faults")
    if faults_of([table, user, ("nn/b.cpp", "Forbidden::print")], {"nn/a.cpp": 1}):
        wrong.append("used rows and listed waits are no faults")
    if not faults_of([], {"nn/a.cpp": 1}):
        wrong.append("a listed wait that is gone is a fault")
    print("\n".join(wrong) if wrong else f"refusal check: {len(rows) + 3} examples as expected")
    return bool(wrong)


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if arguments:
        sys.exit(__doc__)
    return check_tree()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
