"""The mutants of a source: generic changes of one line, and what is spared of them.

tools/mutate_model.py tries them.
"""

import re
from typing import Dict, Iterator, NamedTuple, Tuple

from check_sizes import blank_out


class Mutant(NamedTuple):
    path: str       # below ROOT
    line: int
    operator: str
    begin: int      # of the text that is replaced
    end: int
    text: str       # what stands there instead

    def apply(self, source: str) -> str:
        return source[:self.begin] + self.text + source[self.end:]


# --- operators ----------------------------------------------------------------------------------
# Each yields (begin, end, replacement). `code` is the source with comments, literals and
# preprocessor lines blanked, position by position. clang-format sets spaces around binary
# operators, so `a < b` is a comparison and `vector<int>` is not.

Change = Tuple[int, int, str]

RELATIONAL = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
ARITHMETIC = {"+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "%": ("*",), "+=": ("-=",), "-=": ("+=",),
              "<<": (">>",), ">>": ("<<",), "&": ("|",), "|": ("&",), "|=": ("&=",), "&=": ("|=",), "*=": ("/=",),
              "/=": ("*=",), ">>=": ("<<=",), "<<=": (">>=",), "^": ("&",)}
BOOLEAN = {"&&": ("||",), "||": ("&&",)}


def binary_operators(code: str, table: Dict[str, Tuple[str, ...]]) -> Iterator[Change]:
    for match in re.finditer(r"(?<= )(?:<<=|>>=|[<>=!+\-*/%&|^]=|&&|\|\||<<|>>|[<>+\-*/%&|^])(?=[ \n])", code):
        for other in table.get(match.group(0), ()):
            yield match.start(), match.end(), other


def relational(code: str) -> Iterator[Change]:
    yield from binary_operators(code, RELATIONAL)


def arithmetic(code: str) -> Iterator[Change]:
    yield from binary_operators(code, ARITHMETIC)
    for match in re.finditer(r"(?<![+\-])(\+\+|--)(?![+\-])", code):
        yield match.start(), match.end(), "--" if match.group(0) == "++" else "++"
    for match in re.finditer(r"(?<=[(\s,=])[-~](?=[\w(])", code):
        before = code[:match.start()].rstrip(" \n")
        if before and before[-1] in "(,=?:" or before.endswith("return"):
            yield match.start(), match.end(), ""


def boolean(code: str) -> Iterator[Change]:
    yield from binary_operators(code, BOOLEAN)
    for match in re.finditer(r"!(?=[\w(])", code):
        yield match.start(), match.end(), ""
    for match in re.finditer(r"\b(true|false)\b", code):
        yield match.start(), match.end(), "false" if match.group(1) == "true" else "true"


def constants(code: str) -> Iterator[Change]:
    for match in re.finditer(r"(?<![\w.'])(0x[0-9a-fA-F']+|\d[\d']*(?:\.\d+)?)(u?l{0,2})\b(?![.'])", code):
        statement = code[code.rfind(";", 0, match.start()) + 1:match.start()]
        if re.search(r":\s*$", statement) and "?" not in statement and re.match(r"\s*=|;", code[match.end():]):
            continue  # width of a bit field
        digits = match.group(1).replace("'", "")
        if "." in digits:
            values = [str(float(digits) + step) for step in (1.0, -1.0)]
        else:
            value = int(digits, 0)
            values = [str(value + 1)] + ([str(value - 1)] if value > 0 else [])
        for value in values:
            yield match.start(), match.end(), value + match.group(2)


DECLARATION = re.compile(
    r"^(?:const|constexpr|inline|static|using|typedef|auto|struct|class|enum|friend|template|extern|namespace|public|"
    r"private|virtual|explicit|return|case|default|break|continue|else|if|for|while|do|switch|[\w:<>,\s*&]+[\s*&]\w+\s*"
    r"(?:=|;|\{|\(.*\)\s*(?:const|override|;)))")
STATEMENT = re.compile(r"(?<=[;{}:)])\s*\n\s*((?:\+\+|--|\*|\(|[\w:]+)[^;{}]*;)", re.S)


def statements(code: str) -> Iterator[Change]:
    position = 0
    while True:
        match = STATEMENT.search(code, position)
        if match is None:
            break
        position = match.end() - 1
        text = match.group(1)
        # At namespace scope everything is a declaration, below it starts with two spaces or more.
        if code[match.start(1) - 1] == "\n" or (DECLARATION.match(text) and not re.match(r"^[\w.\[\]>:\-()]+\s*[-+|&*/]?=[^=]", text)):
            continue
        if text.count("(") == text.count(")"):
            yield match.start(1), match.end(1), ";"
    for match in re.finditer(r"\b(break|continue);", code):
        yield match.start(), match.end(), ";"
    for match in re.finditer(r"\) (return(?: [^;{}]*)?;)", code):  # an early return
        yield match.start(1), match.end(1), ";"
    for match in re.finditer(r"\) ((?!return|continue|break|const|override|noexcept)[\w+\-*][^;{}]*;)", code):
        if match.group(1).count("(") == match.group(1).count(")"):
            yield match.start(1), match.end(1), ";"


def closing(code: str, position: int) -> int:
    """Position after the parenthesis that closes the one at `position`."""
    depth = 0
    for index in range(position, len(code)):
        depth += {"(": 1, ")": -1}.get(code[index], 0)
        if depth == 0:
            return index + 1
    return len(code)


def condition_start(code: str, question: int) -> int:
    """Where the condition of the conditional expression whose `?` is at `question` begins."""
    depth, index = 0, question - 1
    while index >= 0:
        char = code[index]
        if char in ")]}":
            depth += 1
        elif char in "([{":
            if depth == 0:
                return index + 1
            depth -= 1
        elif depth == 0:
            if char in ",;?" or (char == "=" and code[index - 1] not in "=!<>" and code[index + 1] != "="):
                return index + 1
            if char == ":" and code[index - 1] != ":" and code[index + 1] != ":":
                return index + 1
            if code.startswith("return", index) and not code[index - 1].isalnum():
                return index + len("return")
        index -= 1
    return 0


def branches(code: str) -> Iterator[Change]:
    for match in re.finditer(r"\b(?:if|while) \(", code):
        end = closing(code, match.end() - 1)
        inside = (match.end(), end - 1)
        text = code[inside[0]:inside[1]]
        if ";" in text or re.match(r"\s*(?:const )?(?:auto|[\w:<>]+)[\s*&]+\w+ = ", text):
            semicolon = inside[0] + text.rfind(";") + 1
            if ";" not in text:
                continue
            inside = (semicolon, inside[1])
        yield inside[0], inside[1], " !(" + code[inside[0]:inside[1]].strip() + ")"
    for match in re.finditer(r" \? ", code):
        begin = condition_start(code, match.start())
        yield begin, match.start(), " !(" + code[begin:match.start()].strip() + ")"
    for match in re.finditer(r"\bstd::(min|max)\b", code):
        yield match.start(1), match.end(1), "max" if match.group(1) == "min" else "min"


OPERATORS = {"relational": relational, "arithmetic": arithmetic, "boolean": boolean, "constant": constants,
             "statement": statements, "branch": branches}


def literal_free(source: str) -> str:
    """`blank_out` leaves nothing of literals, so that no operator acts inside one."""
    return re.sub(r"\bstatic_assert\([^;]*;", lambda m: re.sub(r"[^\n]", " ", m.group(0)), blank_out(source), flags=re.S)


TUNING = re.compile(r"// tuning: \S")


def without_tuning(source: str, code: str) -> str:
    """`code` with what a `// tuning:` comment covers blanked."""
    lines, shown = source.split("\n"), code.split("\n")
    for number, line in enumerate(lines):
        mark = TUNING.search(line)
        if mark is None:
            continue
        last = number
        if not line[:mark.start()].strip():  # alone: as far as the first line that ends something
            last += 1
            while last < len(lines) - 1 and not re.search(r"[;{}]\s*$", shown[last]):
                last += 1
        for covered in range(number, last + 1):
            shown[covered] = " " * len(shown[covered])
    return "\n".join(shown)


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    code = without_tuning(source, literal_free(source))
    for name, operator in OPERATORS.items():
        for begin, end, text in operator(code):
            if name == "branch":  # the replaced text may hold literals
                inner = source[begin:end].strip()
                text = " !(" + inner + ")" if text.startswith(" !(") else text
            yield Mutant(path, source.count("\n", 0, begin + 1) + 1, name, begin, end, text)
