"""Reader of the matrix that ``nvidia-smi topo -m`` prints.

A header with the names of GPUs and NICs, one row for each, then columns of affinities and a
legend.  It tells how many NVLinks a pair has and how near two devices are, never a speed nor
which GPU it is.  Affinity cells may be empty, so they are used only where a list of CPUs stands
right behind the matrix.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from dpsim.core.record import Refused
from dpsim.measurements.importing.facts import (
    APART,
    NODE,
    SWITCH,
    TOGETHER,
    Facts,
    Nic,
    Place,
    Wires,
    many,
)
from dpsim.measurements.importing.nccl_xml import _kind
from dpsim.measurements.readers import text_content

FORMAT = "nvidia-smi topo -m"
MAX_CHARACTERS, MAX_DEVICES = 200_000, 128

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: what follows the matrix in the header
_BEHIND = re.compile(r"\s*(?:CPU Affinity|NUMA Affinity|GPU NUMA ID).*$")
#: two names that lost the blank between them
_MERGED = re.compile(r"(?<=\d)(?=GPU\d|NIC\d|mlx\d)")
_GPU = re.compile(r"GPU\d{1,3}")
_NIC = re.compile(
    r"NIC\d{1,3}|(?:mlx\d|mlx5_bond|bnxt_re|irdma|hfi1|qedr|roce|ib|rdma|efa)\w{0,40}"
)
#: X itself, NV# bonded NVLinks, then ever farther over PCIe; SOC is what old drivers call SYS
_CELL = re.compile(r"X|NV[1-9]\d?|PIX|PXB|PHB|NODE|SYS|SOC")
_CPUS = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
_LEGEND = re.compile(r"^\s*(NIC\d{1,3}):\s*(\S{1,60})\s*$")
_BELOW_SWITCH, _BELOW_SOCKET = ("PIX", "PXB"), ("PIX", "PXB", "PHB", "NODE")

Matrix = list[list[str]]


def claims(text: str) -> bool:
    plain = _ANSI.sub("", text)
    return "ROCm System Management" in plain or bool(re.search(r"^\s*GPU0(?!:)", plain, re.M))


def read(path: Path) -> Facts:
    """The node that the matrix describes."""
    text = text_content(path)
    if len(text) > MAX_CHARACTERS:
        raise Refused(f"is longer than {MAX_CHARACTERS // 1000} kB, too long for a matrix")
    if "ROCm System Management" in text:
        raise Refused("is rocm-smi's table of link types, which doesn't say how many xGMI links a "
                      "pair has; an RCCL topology dump (NCCL_TOPO_DUMP_FILE) does")  # fmt: skip
    lines = [_ANSI.sub("", line).rstrip() for line in text.split("\n")]
    if any("\x1b" in line for line in lines):
        raise Refused("holds escape sequences other than colours")
    names, start = _header(lines)
    matrix, rest = _rows(lines, names, start)
    _require_symmetric(matrix, names)
    legend = {found[1]: found[2] for line in lines if (found := _LEGEND.match(line))}
    return _facts(path.name, names, matrix, rest, legend)


def _header(lines: list[str]) -> tuple[list[str], int]:
    """The names of the columns, and the number of the line behind the header."""
    starts = (n for n, line in enumerate(lines) if re.match(r"\s*GPU0(?!:)", line))
    number = next(starts, None)
    if number is None:
        raise Refused("has no header that starts with GPU0")
    names = _MERGED.sub(" ", _BEHIND.sub("", lines[number])).split()
    for name in names:
        if not _GPU.fullmatch(name) and not _NIC.fullmatch(name):
            raise Refused(f"line {number + 1}: column {name[:30]!r} is neither a GPU nor a NIC")
    gpus = sum(name.startswith("GPU") for name in names)
    if names[:gpus] != [f"GPU{i}" for i in range(gpus)] or len(set(names)) < len(names):
        raise Refused(f"line {number + 1}: columns are not GPU0 … GPU{gpus - 1}, then NICs")
    if len(names) > MAX_DEVICES:
        raise Refused(f"line {number + 1}: more than {MAX_DEVICES} columns")
    return names, number + 1


def _rows(lines: list[str], names: list[str], start: int) -> tuple[Matrix, list[list[str]]]:
    """The cells of the matrix, and what stands behind them in each row."""
    matrix: Matrix = []
    rest: list[list[str]] = []
    for number, line in enumerate(lines[start:], start + 1):
        words = line.split()
        if not words:
            continue
        if len(matrix) == len(names):
            if _GPU.fullmatch(words[0]) or words[0] in names:
                raise Refused(f"line {number}: a row {words[0][:30]} too many; the matrix is not "
                              "square")  # fmt: skip
            break
        if words[0] != names[len(matrix)]:
            raise Refused(f"line {number}: {words[0][:30]!r} where the row of "
                          f"{names[len(matrix)]} is expected; the matrix is not square or was "
                          "cut short")  # fmt: skip
        cells = words[1 : len(names) + 1]
        for cell in cells:
            if not _CELL.fullmatch(cell):
                raise Refused(f"line {number}: {cell[:30]!r} is not one of X, NV#, PIX, PXB, PHB, "
                              f"NODE, SYS, or the row of {words[0]} has too few cells")  # fmt: skip
        if len(cells) < len(names):
            raise Refused(f"line {number}: {words[0]} has {len(cells)} of {len(names)} cells; the "
                          "matrix was cut short")  # fmt: skip
        matrix.append(["SYS" if cell == "SOC" else cell for cell in cells])
        rest.append(words[len(names) + 1 :])
    if len(matrix) < len(names):
        raise Refused(f"has no row for {', '.join(names[len(matrix) :])[:80]}; the matrix was cut "
                      "short")  # fmt: skip
    return matrix, rest


def _require_symmetric(matrix: Matrix, names: list[str]) -> None:
    for a, row in enumerate(matrix):
        for b, cell in enumerate(row):
            if (cell == "X") != (a == b):
                raise Refused(f"{names[a]} to {names[b]} is {cell}; X stands on the diagonal only")
            if cell != matrix[b][a]:
                raise Refused(f"{names[a]} to {names[b]} is {cell}, and back it is {matrix[b][a]}")
            if cell.startswith("NV") and max(a, b) >= sum(n.startswith("GPU") for n in names):
                raise Refused(f"{names[a]} to {names[b]} is {cell}; NICs have no NVLink")


def _facts(
    source: str, names: list[str], matrix: Matrix, rest: list[list[str]], legend: dict[str, str]
) -> Facts:
    count = sum(name.startswith("GPU") for name in names)
    pairs = {
        (a, b): int(matrix[a][b][2:])
        for a in range(count)
        for b in range(a + 1, count)
        if matrix[a][b].startswith("NV")
    }
    places = _places(matrix, count, [_cpus(words) for words in rest[:count]])
    called = [*names[:count], *(legend.get(name, name) for name in names[count:])]
    hangs = places if places is not None else (None,) * len(names)
    nics = tuple(
        Nic(legend.get(name, name), place, None, _kind(legend.get(name, name), None))
        for name, place in zip(names[count:], hangs[count:], strict=True)
    )
    where = "where they hang isn't told"
    if places is not None:
        where = "on " + many(len({place.socket for place in places[:count]}), "NUMA node")
    joined = f"{many(len(pairs), 'pair')} with NVLinks" if pairs else "no NVLink"
    return Facts(
        source=source,
        format=FORMAT,
        gpus=count,
        places=places[:count] if places is not None else None,
        wires=Wires(pairs=pairs),
        nics=nics,
        uplinks={place.switch: None for place in places or () if place.switch is not None},
        notes=(f"{many(count, 'GPU')}, {many(len(nics), 'NIC')}, {joined}; {where}",),
        near=_near(matrix, count, called, places),
    )


def _near(
    matrix: Matrix, gpus: int, called: list[str], places: tuple[Place, ...] | None
) -> dict[tuple[str, str], str]:
    """How near each GPU is to every other device; behind NVLinks as far as the places tell."""
    found = {}
    for a in range(gpus):
        for b in range(a + 1, len(matrix)):
            word = matrix[a][b]
            if not word.startswith("NV"):
                near = SWITCH if word in _BELOW_SWITCH else NODE
                found[called[a], called[b]] = near if word in _BELOW_SOCKET else APART
            elif places is not None:
                same = places[a].socket == places[b].socket
                found[called[a], called[b]] = TOGETHER if same else APART
    return found


def _cpus(behind: list[str]) -> str | None:
    """The list of CPUs next to the matrix; a lone number could be the NUMA node."""
    word = behind[0] if behind else ""
    return word if _CPUS.fullmatch(word) and ("-" in word or "," in word) else None


def _places(matrix: Matrix, gpus: int, cpus: list[str | None]) -> tuple[Place, ...] | None:
    """Where each device hangs; None where NVLinks hide it and no CPU affinity tells it."""

    def near(words: tuple[str, ...]) -> Callable[[int, int], bool]:
        return lambda a, b: matrix[a][b] in words

    sockets = _groups(len(matrix), near(_BELOW_SOCKET))
    if None not in cpus:
        by_cpus = _groups(
            len(matrix),
            lambda a, b: near(_BELOW_SOCKET)(a, b) or (max(a, b) < gpus and cpus[a] == cpus[b]),
        )
        split = {(by_cpus[gpu], cpus[gpu]) for gpu in range(gpus)}
        if len(split) == len(set(cpus)) == len({by_cpus[gpu] for gpu in range(gpus)}):
            sockets = by_cpus
    if not _told(matrix, gpus, sockets, cpus):
        return None
    switches = _groups(len(matrix), near(_BELOW_SWITCH))
    shared = {switches[gpu] for gpu in range(gpus) if switches.count(switches[gpu]) > 1}
    return tuple(
        Place(socket, f"switch {switch}" if switch in shared else None)
        for socket, switch in zip(sockets, switches, strict=True)
    )


def _groups(size: int, same: Callable[[int, int], bool]) -> list[int]:
    """For each device the least number of those it is joined to, directly or through others."""
    group = list(range(size))
    for a in range(size):
        for b in range(a + 1, size):
            if same(a, b):
                old, new = max(group[a], group[b]), min(group[a], group[b])
                group = [new if g == old else g for g in group]
    return group


def _told(matrix: Matrix, gpus: int, sockets: list[int], cpus: list[str | None]) -> bool:
    """Whether every two groups of GPUs are known to be apart: by SYS somewhere, or by CPUs."""
    for a in range(gpus):
        for b in range(a + 1, gpus):
            if sockets[a] == sockets[b]:
                continue
            if None not in cpus and cpus[a] != cpus[b]:
                continue
            first = [i for i, g in enumerate(sockets) if g == sockets[a]]
            second = [i for i, g in enumerate(sockets) if g == sockets[b]]
            if not any(matrix[i][j] == "SYS" for i in first for j in second):
                return False
    return True
