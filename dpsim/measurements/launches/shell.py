"""Shell scripts, read without being run: assignments, Slurm's directives and commands.

What a shell would do is followed as far as text goes: quotes, ``$NAME``, ``${NAME:-value}``,
arrays and whole-number arithmetic.  What another program would answer (``$(hostname)``), what the
caller gives (``$1``) and what stands inside ``if``, loops and functions is unknown, and stays the
name of what it is.  Expansion stops at MAX_TEXT characters, so a script cannot grow.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from dpsim.core.record import Refused

MAX_TEXT = 200_000
MAX_LINES = 20_000
_ROUNDS = 8
_ASSIGN = re.compile(
    r"^(?:(?:export|local|readonly|declare|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=(.*)$",
    re.DOTALL,
)
_DEFAULT = re.compile(r'^:\s+"?\$\{([A-Za-z_]\w*):?=(.*)\}"?$', re.DOTALL)
_NAME = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?([-=])([^{}]*))?\}|\$([A-Za-z_]\w*)")
#: all elements of an array, a word each
_ELEMENTS = re.compile(r'"(\$\{[A-Za-z_]\w*\[@\]\})"')
_ARITHMETIC = re.compile(r"\$\(\(([^()]*)\)\)")
_SUBSTITUTION = re.compile(r"\$\((?!\()[^()]*\)|`[^`]*`")
_DIRECTIVE = re.compile(r"^#(?:SBATCH|PBS|BSUB)\s+(.*)$")
_OPENS = re.compile(r"^(if|for|while|until|case|select)\b|^(function\s+\w+|\w+\s*\(\))\s*\{?$")
_CLOSES = re.compile(r"^(fi|done|esac)\b|^\}")
_SIGN = re.compile("[\"'#]")
_TERM = re.compile(r"\s*(\d{1,12})\s*|\s*([-+*/])\s*")


@dataclass
class ShellText:
    """What a script says.

    directives  of Slurm: option -> value and line
    variables   name -> text
    commands    logical lines that are no assignments, expanded, with their first line
    """

    directives: dict[str, tuple[str, int]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    commands: list[tuple[str, int]] = field(default_factory=list)

    def value(self, text: str) -> str:
        """`text` with what is known of the script's names put in."""
        text = _ELEMENTS.sub(r"\1", text)
        for _ in range(_ROUNDS):
            before = text
            text = _ARITHMETIC.sub(_computed, self._put_in(text))
            if text == before:
                break
        return text

    def _put_in(self, text: str) -> str:
        """`text` with each name once; Refused before it fills the memory."""
        parts, place, size = list[str](), 0, 0
        for found in _NAME.finditer(text):
            parts += [text[place : found.start()], self._known(found)]
            size += len(parts[-1]) + len(parts[-2])
            if size > MAX_TEXT:
                raise Refused(f"grows to more than {MAX_TEXT:,} characters when names are put in")
            place = found.end()
        return "".join((*parts, text[place:]))

    def _known(self, found: re.Match[str]) -> str:
        name = found[1] or found[4]
        if name in self.variables:
            return self.variables[name]
        return found[3] if found[2] and found[3] else found[0]


def read(text: str) -> ShellText:
    """The script `text`; Refused where it is too long."""
    if text.count("\n") > MAX_LINES:
        raise Refused(f"has more than {MAX_LINES:,} lines")
    script, depth = ShellText(), 0
    for line, number in _logical(text, script):
        first = line.split(None, 1)[0] if line.split() else ""
        if _OPENS.match(line) and not re.search(r"\b(fi|done|esac)\s*$|\}\s*$", line):
            depth += 1
        elif _CLOSES.match(line):
            depth = max(depth - 1, 0)
        elif depth and (_ASSIGN.match(line) or _DEFAULT.match(line)):
            continue  # who knows whether
        elif first not in ("then", "else", "elif", "do"):
            _take(script, line, number)
    return script


def _take(script: ShellText, line: str, number: int) -> None:
    """An assignment, a default, or a command."""
    if found := _DEFAULT.match(line):
        script.variables.setdefault(found[1], script.value(_unquoted(found[2])))
        return
    found = _ASSIGN.match(line)
    whole = found and (found[3][:1] in ("(", '"', "'") or not re.search(r"\s\S", found[3]))
    if found and whole:
        value = found[3].strip()
        inner = value[1:-1] if value.startswith("(") and value.endswith(")") else _unquoted(value)
        own = script.variables.get(found[1], "")
        text = script.value(_hidden(inner))
        script.variables[found[1]] = f"{own} {text}".strip() if found[2] else text
        return
    script.commands.append((script.value(_hidden(line)), number))


def _hidden(text: str) -> str:
    """`text` with what other programs would answer as one word that no number is."""
    for _ in range(_ROUNDS):
        text, count = _SUBSTITUTION.subn("$?", text)
        if not count:
            break
    return text


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def _computed(found: re.Match[str]) -> str:
    """Whole-number arithmetic from left to right, products before sums; as it is where it is not
    that."""
    text, place, terms = found[1].replace("$", ""), 0, list[str]()
    while place < len(text):
        term = _TERM.match(text, place)
        if term is None:
            return found[0]
        terms.append(term[1] or term[2])
        place = term.end()
    if len(terms) % 2 == 0 or not all(t.isdigit() for t in terms[::2]):
        return found[0]
    sums, sign = [int(terms[0])], 1
    for operator, digits in zip(terms[1::2], terms[2::2], strict=True):
        if operator in "+-":
            sign = 1 if operator == "+" else -1
            sums.append(sign * int(digits))
        elif operator == "*":
            sums[-1] *= int(digits)
        elif int(digits):
            sums[-1] = int(sums[-1] / int(digits))
        else:
            return found[0]
    return str(sum(sums))


def _logical(text: str, script: ShellText) -> list[tuple[str, int]]:
    """Lines without comments, those that go on joined: behind a backslash, inside quotes or
    inside the parentheses of an array."""
    found: list[tuple[str, int]] = []
    held, start = _Held(), 0
    for number, raw in enumerate(text.splitlines(), 1):
        if directive := _DIRECTIVE.match(raw):
            _directive(script, directive[1], number)
        start = start if held.parts else number
        more = held.add(raw)
        if more or held.open:
            continue
        if joined := held.text:
            found.append((joined, start))
        held = _Held()
    return [*found, *([(held.text, start)] if held.text else [])]


@dataclass
class _Held:
    """A logical line while it grows.  What is open is counted as lines come, never anew: a quote
    may be as long as the file.

    quote  the quote that is open, "" where none is
    depth  parentheses that are open
    array  whether they are those of an array that is assigned
    """

    parts: list[str] = field(default_factory=list)
    quote: str = ""
    depth: int = 0
    array: bool = False

    @property
    def text(self) -> str:
        return " ".join(self.parts).strip()

    @property
    def open(self) -> bool:
        """Whether a quote, or the list of an array, is still open."""
        return bool(self.quote) or (self.array and self.depth > 0)

    def add(self, line: str) -> bool:
        """Take a line up to its comment (a # at its start or behind a blank, outside of quotes);
        whether it ends in a backslash."""
        end = len(line)
        for found in _SIGN.finditer(line):
            place, letter = found.start(), found[0]
            if letter == "#" and not self.quote and (not place or line[place - 1].isspace()):
                end = place
                break
            if letter in "\"'":
                self.quote = "" if letter == self.quote else self.quote or letter
        bare = line[:end].rstrip()
        if not self.parts:
            assigned = _ASSIGN.match(bare.strip())
            self.array = bool(assigned and assigned[3].startswith("("))
        self.depth += bare.count("(") - bare.count(")")
        self.parts.append(bare.removesuffix("\\").strip())
        return bare.endswith("\\")


def _directive(script: ShellText, text: str, number: int) -> None:
    """``--nodes=2``, ``--nodes 2`` or ``-N 2``."""
    bare = text.partition(" #")[0].strip()
    found = re.match(r"(--?[\w-]+)(?:[=\s]+(.*))?$", bare)
    if found:
        script.directives[found[1]] = (found[2] or "").strip(), number


def words(command: str) -> list[str]:
    """The words of a command, quotes gone."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.replace('"', " ").replace("'", " ").split()
