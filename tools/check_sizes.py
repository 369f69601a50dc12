"""Holds file and function lengths of C++ and Python against the house limits.

usage: check_sizes.py [ROOT]

Files: a note above 400 lines, an error above 800. Functions: a note above 40, an error above 80.
Lists (*.def) are exempt, and so is what a file marks with a comment `table:` on the line before a
function (a function that is one long table).
Exit code: 0 no errors (notes are printed all the same), 1 errors, one line each.
"""

import ast
import pathlib
import re
import sys
from typing import Iterator, List, NamedTuple

FILE_NOTE, FILE_LIMIT = 400, 800
FUNCTION_NOTE, FUNCTION_LIMIT = 40, 80
FOLDERS = ("src", "shim", "tools", "tests")
NOT_FUNCTIONS = re.compile(r"^\s*(?:inline\s+)?(namespace|class|struct|union|enum|extern)\b")
TABLE_MARK = re.compile(r"(//|#)\s*table:")


class Function(NamedTuple):
    name: str
    line: int
    length: int


def blank_out(text: str) -> str:
    """The C++ text with comments, literals and preprocessor lines blanked; line breaks stay."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\''
        r"|^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M)
    return token.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def first_branches(text: str) -> str:
    """The text with the #else and #elif branches blanked: they often open the same brace again."""
    lines, skipping = [], [False]
    for line in text.split("\n"):
        if re.match(r"\s*#\s*if", line):
            skipping.append(skipping[-1])
        elif re.match(r"\s*#\s*(else|elif)", line) and len(skipping) > 1:
            skipping[-1] = True
        elif re.match(r"\s*#\s*endif", line) and len(skipping) > 1:
            skipping.pop()
        lines.append("" if skipping[-1] else line)
    return "\n".join(lines)


def cpp_functions(text: str) -> Iterator[Function]:
    """Outermost function bodies: a brace after `…)` that opens no namespace, class or list."""
    text = blank_out(first_branches(text))
    depth, start, opened_at, head_from, line = 0, None, 0, 0, 1
    head = ""
    for index, char in enumerate(text):
        if char == "\n":
            line += 1
        elif char == "{":
            before = text[head_from:index]
            is_body = ")" in before and "=" not in before.split("(")[0] and not NOT_FUNCTIONS.match(before)
            if start is None and is_body:
                start, opened_at, head = depth, line - before.strip().count("\n"), before
            depth += 1
            head_from = index + 1
        elif char == "}":
            depth -= 1
            head_from = index + 1
            if start == depth:
                name = re.search(r"([~\w:]+|operator[^\w\s]+)\s*\(", head)
                yield Function(name.group(1) if name else "?", opened_at, line - opened_at + 1)
                start = None
        elif char == ";":
            head_from = index + 1


def python_functions(text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Function(node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)


def check_file(path: pathlib.Path, name: str, notes: List[str], errors: List[str]) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if len(lines) > FILE_NOTE:
        report = errors if len(lines) > FILE_LIMIT else notes
        report.append(f"{name}:1: {len(lines)} lines (limit {FILE_LIMIT}, aim {FILE_NOTE})")
    for function in python_functions(text) if path.suffix == ".py" else cpp_functions(text):
        above = lines[function.line - 2] if function.line >= 2 else ""
        if function.length <= FUNCTION_NOTE or TABLE_MARK.search(above):
            continue
        report = errors if function.length > FUNCTION_LIMIT else notes
        report.append(f"{name}:{function.line}: {function.name} has {function.length} lines "
                      f"(limit {FUNCTION_LIMIT}, aim {FUNCTION_NOTE})")


def main(arguments: List[str]) -> int:
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    notes: List[str] = []
    errors: List[str] = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".py"} and path.is_file():
                check_file(path, path.relative_to(root).as_posix(), notes, errors)
    for note in notes:
        print("note: " + note)
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
