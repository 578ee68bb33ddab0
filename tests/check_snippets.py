#!/usr/bin/env python3
"""Compares the code in the documentation with the tests that run it.

A fenced block after the line `<!-- FILE: NAME -->` must stand in FILE between the lines
`// [NAME]` and `// [end]`, word for word but for the indentation.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"<!-- (\S+): ([^>]+?) -->\n```cpp\n(.*?)```", re.S)


def region(path, name):
    """The lines of the named region, or None."""
    text = path.read_text() if path.is_file() else ""
    found = re.search(rf"^ *// \[{re.escape(name)}\]\n(.*?)^ *// \[end\]", text, re.S | re.M)
    return textwrap.dedent(found.group(1)).strip() if found else None


def main():
    faults = []
    count = 0
    for document in sorted(ROOT.glob("docs/*.md")) + [ROOT / "README.md"]:
        text = document.read_text()
        if len(re.findall(r"^<!-- \S+: ", text, re.M)) != len(BLOCK.findall(text)):
            faults.append(f"{document.name}: a marked place has no code block behind it")
        for file, name, code in BLOCK.findall(text):
            count += 1
            tested = region(ROOT / file, name)
            if tested is None:
                faults.append(f"{document.name}: {file} has no region [{name}]")
            elif tested != textwrap.dedent(code).strip():
                faults.append(f"{document.name}: [{name}] differs from {file}")
    for fault in faults:
        print(fault)
    if count == 0:
        print("no marked snippet was found")
        return 1
    print(f"snippets: {count} as tested")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
