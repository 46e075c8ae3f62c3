"""What the words of hardware mean: accelerators, nodes, named platforms, networks, line rates.

Everything here is a table of regular expressions over lower-case text.  The first line that
matches wins, so the more special word comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsim.machines.devices import NetworkKind


@dataclass(frozen=True)
class Board:
    """A form of an accelerator: the `words` that tell it, its `device`, where it is `fitted`
    (a key of `NODES`), and the `note` that its choice needs.  The one without words is a guess."""

    words: str
    device: str
    fitted: str
    note: str = ""


@dataclass(frozen=True)
class Accelerator:
    """A family of accelerators; `nic` is the usual line rate of one NIC beside it [Gbit/s]."""

    words: str
    boards: tuple[Board, ...]
    nic: float


@dataclass(frozen=True)
class Node:
    """A machine whose node holds up to `gpus` GPUs, wired in one of the ways of `WIRING`."""

    wiring: str
    gpus: int
    machine: str


def _one(words: str, device: str, fitted: str, nic: float, note: str = "") -> Accelerator:
    return Accelerator(words, (Board("", device, fitted, note),), nic)


#: PCIe is written in many ways
PCIE = r"pci[- ]?e\b|pci express|\bpcie"

_V100 = (
    Board(rf"(?:{PCIE}).*32|32.*(?:{PCIE})", "v100-pcie-32gb", "pcie3"),
    Board(PCIE, "v100-pcie-16gb", "pcie3"),
    Board(r"sxm-?3", "v100-sxm3-32gb", "v100-sxm3"),
    Board(r"\b32 ?g", "v100-sxm2-32gb", "v100"),
    Board(r"\b16 ?g", "v100-sxm2-16gb", "v100"),
    Board("", "v100-sxm2-16gb", "v100"),
)
_A100 = (
    Board(rf"(?:{PCIE}).*40|40.*(?:{PCIE})", "a100-pcie-40gb", "a100-pcie"),
    Board(PCIE, "a100-pcie-80gb", "a100-pcie"),
    Board(r"\b40 ?g", "a100-sxm-40gb", "a100"),
    Board(r"\b80 ?g", "a100-sxm-80gb", "a100"),
    Board("", "a100-sxm-80gb", "a100"),
)
_H100 = (
    Board(r"\bnvl\b", "h100-pcie", "h100-pcie", "H100 NVL is taken as H100 PCIe."),
    Board(PCIE, "h100-pcie", "h100-pcie"),
    Board(r"\b96 ?g", "h100-sxm-96gb", "h100"),
    Board(r"\b64 ?g", "h100-sxm-64gb", "h100"),
    Board(r"\b80 ?g|sxm", "h100-sxm", "h100"),
    Board("", "h100-sxm", "h100"),
)
_P100 = (
    Board(PCIE, "p100-pcie-16gb", "pcie3"),
    Board(r"sxm|nvlink|dgx", "p100-sxm2-16gb", "p100"),
    Board("", "p100-pcie-16gb", "pcie3"),
)


def _whole_generation(name: str, device: str) -> str:
    return f"Only the generation {name} is stated; {device} stands in, so calibrate compute."


#: the accelerators that can be told by name
ACCELERATORS = (
    _one(r"gb ?200|grace[- ]blackwell", "gb200", "gb200", 400),
    _one(r"\bb200", "b200", "b200", 400),
    _one(r"gh ?200|grace[- ]hopper", "gh200-96gb", "gh200", 200),
    _one(r"\bh200", "h200", "h200", 400),
    Accelerator(r"\bh100", _H100, 400),
    _one(r"\bh800", "h800-sxm", "h800", 400),
    _one(r"\bh20\b", "h20", "h200", 400),
    Accelerator(r"\ba100", _A100, 200),
    _one(r"\ba800", "a800-sxm-80gb", "a800", 200),
    _one(r"\bl40s", "l40s", "l40s", 400),
    _one(r"\bl4\b", "l4", "pcie4", 100),
    _one(r"rtx ?6000 ada|6000 ada", "rtx-6000-ada", "pcie4", 100),
    _one(r"\ba6000", "rtx-a6000", "pcie4", 100),
    _one(r"\ba5000", "rtx-a5000", "pcie4", 100),
    _one(r"\ba40\b", "a40", "pcie4", 100),
    _one(r"\ba30\b", "a30", "pcie4", 100),
    _one(r"\ba10g?\b", "a10", "pcie4", 100),
    Accelerator(r"\bv100", _V100, 100),
    Accelerator(r"\bp100", _P100, 100),
    _one(r"\bp40\b", "p40", "pcie3", 100),
    _one(r"\bk80|gk210", "k80-gk210", "k80", 100),
    _one(r"\bk40m?\b", "k40", "pcie3", 56),
    _one(r"\bm60\b|gm204", "m60-gm204", "m60", 100),
    _one(r"\bm40\b", "m40", "pcie3", 56),
    _one(r"\bt4\b", "t4", "t4", 100),
    _one(r"mi355x", "mi355x", "mi325x", 400),
    _one(r"mi325x?", "mi325x", "mi325x", 400),
    _one(r"mi300x", "mi300x", "mi300x", 400),
    _one(r"mi210", "mi210", "pcie4", 200),
    _one(r"mi100", "mi100", "pcie4", 200),
    _one(r"(?:rtx ?|\b)5090", "rtx5090", "staged4", 100),
    _one(r"(?:rtx ?|\b)4090", "rtx4090", "staged4", 100),
    _one(r"(?:rtx ?|\b)3090", "rtx3090", "staged4", 100),
    _one(r"(?:rtx ?|\b)3080", "rtx3080", "staged4", 100),
    _one(r"2080 ?ti", "rtx2080ti", "staged3", 100),
    _one(r"rtx ?8000", "rtx-8000", "pcie3", 100),
    _one(r"rtx ?6000", "rtx-6000", "pcie3", 100),
    _one(r"titan ?rtx", "titan-rtx", "staged3", 100),
    _one(r"titan ?v\b", "titan-v", "pcie3", 100),
    _one(r"1080 ?ti", "gtx1080ti", "pcie3", 100),
    _one(r"gtx ?1080", "gtx1080", "pcie3", 100),
    _one(r"titan ?xp", "titan-xp", "pcie3", 100),
    _one(r"titan ?x.*pascal", "titan-x-pascal", "pcie3", 100),
    _one(r"titan ?x.*maxwell|gtx titan ?x", "titan-x-maxwell", "pcie3", 56),
    _one("blackwell", "b200", "b200", 400, _whole_generation("Blackwell", "B200")),
    _one("hopper", "h100-sxm", "h100", 400, _whole_generation("Hopper", "H100 SXM")),
    _one("volta", "v100-sxm2-16gb", "v100", 100, _whole_generation("Volta", "V100 SXM2")),
    _one("pascal", "p100-pcie-16gb", "pcie3", 100, _whole_generation("Pascal", "P100 PCIe")),
)
#: where the text says that the GPU isn't known
NOT_STATED = r"\bnot (?:stated|named|given|known|visible|disclosed)|\bunknown|\bunspecified"
_NOT_KNOWN = "The GPU isn't stated; {} stands in, so calibrate compute and don't trust memory."
GEFORCE = _one("geforce|gtx|rtx", "rtx2080ti", "staged3", 100, _NOT_KNOWN.format("RTX 2080 Ti"))
ANY_GPU = _one("", "v100-pcie-16gb", "pcie3", 100, _NOT_KNOWN.format("V100 PCIe"))

_PCIE3, _PCIE4 = Node("pcie3", 8, "rack-100gbe"), Node("pcie4", 8, "rack-pcie4")
_PCIE5, _ROOT = Node("pcie5", 8, "rack-pcie5"), Node("root", 10, "single-root-pcie3")
_STAGED3, _STAGED4 = Node("staged3", 8, "rtx2080ti-8"), Node("staged4", 8, "rtx4090-8")
_ANY_PCIE = (_PCIE3, _PCIE4, _PCIE5, _ROOT, _STAGED3, _STAGED4)


def _first(node: Node) -> tuple[Node, ...]:
    rest = _ANY_PCIE if node.wiring.startswith("pcie") else (_STAGED3, _STAGED4, *_ANY_PCIE[:3])
    return (node, *(other for other in rest if other != node))


#: where a board is fitted, the usual node first
NODES: dict[str, tuple[Node, ...]] = {
    "v100": (Node("cube", 8, "dgx-1v"), Node("mesh", 4, "v100-4"), Node("switch", 16, "dgx-2")),
    "v100-sxm3": (Node("switch", 16, "dgx-2"),),
    "p100": (Node("cube", 8, "dgx-1p"),),
    "a100": (Node("switch", 8, "dgx-a100"), Node("mesh", 4, "a100-4")),
    "a100-pcie": (
        Node("pcie4", 4, "a100-pcie-4"),
        Node("pairs", 4, "nc96ads-a100-v4"),
        *_first(_PCIE4),
        Node("pcie3", 10, "a100-pcie-10"),
    ),
    "a800": (Node("switch", 8, "a800-8"),),
    "h100": (Node("switch", 8, "dgx-h100"), Node("mesh", 4, "h100-4")),
    "h100-pcie": _first(_PCIE5),
    "h800": (Node("switch", 8, "h800-8"),),
    "h200": (Node("switch", 8, "dgx-h200"), Node("mesh", 4, "h100-4")),
    "gh200": (Node("mesh", 4, "gh200-4"),),
    "b200": (Node("switch", 8, "dgx-b200"),),
    "gb200": (Node("switch", 72, "gb200-nvl72"),),
    "mi300x": (Node("mesh", 8, "mi300x-8"),),
    "mi325x": (Node("mesh", 8, "mi325x-8"),),
    "l40s": (Node("pcie4", 4, "l40s-4"), Node("pcie4", 8, "l40s-8"), *_first(_PCIE4)),
    "k80": (Node("pcie3", 8, "p2.8xlarge"),),
    "m60": (Node("pcie3", 4, "g3.16xlarge"),),
    "t4": (Node("pcie3", 4, "g4dn.12xlarge"), *_first(_PCIE3)),
    "pcie3": _first(_PCIE3),
    "pcie4": _first(_PCIE4),
    "staged3": _first(_STAGED3),
    "staged4": _first(_STAGED4),
}

PAIRS = r"nvlink_pair|nvlink (?:pair|bridge)|bridged pairs"
#: words for the wiring inside a node; "full" is a mesh of up to 4 GPUs, else a switch
WIRING = (
    (r"nvswitch|nv switch|hgx", "switch"),
    (r"cube|nvlink_mesh", "cube"),
    (PAIRS, "pairs"),
    (r"fully[- ](?:connected|meshed)|all[- ]to[- ]all|full mesh|xgmi", "full"),
    (r"single[- ]root", "root"),
)
#: words for GPUs that cannot, or can, read each other's memory over PCIe
NO_P2P = r"no (?:p2p|peer)|(?:p2p|peer[- ]to[- ]peer) (?:is )?(?:not supported|off|disabled)"
P2P = r"with p2p|p2p (?:on|enabled|driver|patch)|patched p2p"

#: platforms with a name: what tells them, where their boards are fitted, the machine
PLATFORMS = (
    (r"\bdgx[- ]?2h?\b", ("v100", "v100-sxm3"), "dgx-2"),
    (r"\bdgx[- ]?1p?\b", ("p100",), "dgx-1p"),
    (r"\bdgx[- ]?1v?\b", ("v100",), "dgx-1v"),
    (r"dgx[- ]?a100|\bselene\b", ("a100",), "dgx-a100"),
    (r"dgx[- ]?h100|\beos\b", ("h100",), "dgx-h100"),
    (r"dgx[- ]?h200", ("h200",), "dgx-h200"),
    (r"dgx[- ]?b200", ("b200",), "dgx-b200"),
    (r"pix to gpu ?2", ("v100",), "v100-1x100g"),
    (r"\bp3\.\d+xlarge", ("v100",), "p3.16xlarge"),
    (r"\bp3dn\b", ("v100",), "p3dn.24xlarge"),
    (r"\bp4de?\b", ("a100",), "p4d.24xlarge"),
    (r"\bp5\.", ("h100",), "p5.48xlarge"),
    (r"\bp2\.\d*xlarge", ("k80",), "p2.8xlarge"),
    (r"\bg3\b", ("m60",), "g3.16xlarge"),
    (r"\bg4dn\b", ("t4",), "g4dn.12xlarge"),
    (r"\bndm?\d*[a-z]* ?a100|ndm? a100 ?v4|nd\d+am?sr_a100", ("a100",), "nd-a100-v4"),
    (r"nc\d*[a-z]* ?a100", ("a100-pcie",), "nc96ads-a100-v4"),
    (r"a3[- ]?high|a3-highgpu", ("h100",), "a3-high"),
    (r"a3[- ]?mega|a3-megagpu", ("h100",), "a3-mega"),
    (r"a3[- ]?ultra|a3-ultragpu", ("h200",), "a3-ultra"),
    (r"\bpolaris\b", ("a100",), "polaris"),
    (r"marenostrum 5|\bmn5\b", ("h100",), "h100-4"),
    (r"xe8545", ("a100",), "a100-4"),
    (r"r750xa", ("a100-pcie",), "a100-pcie-4"),
    (r"dss ?8440", ("a100-pcie",), "a100-pcie-10"),
    (r"nvl ?72", ("gb200",), "gb200-nvl72"),
)
#: NICs of platforms whose node is the usual one: count, line rate [Gbit/s] and source
NIC_PLATFORMS = (
    (r"abci.*\(a\)|abci 2\.0", 4, 200.0, "ABCI user guide: four HDR NICs per compute node (A)"),
    (r"\bperlmutter\b", 4, 200.0, "NERSC documentation: four Slingshot 11 NICs per GPU node"),
    (r"juwels booster", 4, 200.0, "JUWELS Booster documentation: four HDR200 NICs per node"),
    (r"\bleonardo\b", 4, 100.0, "Leonardo documentation: four HDR100 ports per node"),
    (r"jean[- ]?zay", 4, 100.0, "IDRIS documentation: four Omni-Path 100 links per node"),
    (r"bm\.gpu\.h100", 8, 400.0, "OCI documentation: 3,200 Gbit/s RDMA network per node"),
    (r"\bp3\.[28]xlarge", 1, 10.0, "Amazon EC2 P3 instances page"),
    (r"\bg3\.8xlarge", 1, 10.0, "Amazon EC2 G3 instances page"),
    (r"\bg[56]\.(?:12|24)xlarge", 1, 40.0, "Amazon EC2 G5 and G6 instances pages"),
    (r"\bg[56]\.48xlarge", 1, 100.0, "Amazon EC2 G5 and G6 instances pages"),
    (r"n1-standard-[4-7]\b", 1, 10.0, "Google Compute Engine documentation: egress of N1"),
    (r"n1-standard-(?:8|1[0-5])\b", 1, 16.0, "Google Compute Engine documentation: egress of N1"),
    (r"n1-standard-\d\d", 1, 16.0, "Google Compute Engine documentation: egress of N1 of 2017"),
)
#: the cloud machine that a network's kind stands for
KIND_MACHINES = (
    (r"tcpxo", "h100", "a3-mega"),
    (r"tcpx", "h100", "a3-high"),
    (r"\befa\b", "h100", "p5.48xlarge"),
    (r"\befa\b", "a100", "p4d.24xlarge"),
    (r"\befa\b", "v100", "p3dn.24xlarge"),
)

#: TCP through the host's kernel, over whatever wire
TCP = r"(?<![a-z])tcp(?!x)|\bsockets?\b|ipoib|\bip over|used as ip\b|gvnic|\biperf|\bvpc\b"
_IB = r"infini ?band|(?<![a-z])ib(?![a-z])|\b[hnefqx]dr ?\d*\b|\bqdr\b"
#: words for what joins nodes; "rdma" alone leaves the choice open
KINDS: tuple[tuple[str, NetworkKind], ...] = (
    (r"tcpxo?|fastrak", "tcpx"),
    (r"(?<![a-z])efa(?:v\d)?(?![a-z])|elastic fabric", "efa"),
    (r"slingshot|cassini|\bcxi\b", "slingshot"),
    (r"omni[- ]?path|(?<![a-z])opa(?![a-z])|cornelis", "omni_path"),
    (r"roce|bnxt|\bthor\b|bluefield|spectrum|iwarp", "roce"),
    (_IB, "infiniband"),
    (r"(?:gb?e\b|ethernet).*rdma|rdma.*(?:gb?e\b|ethernet)", "roce"),
    (r"rdma", "infiniband"),
    (r"ethernet|gigabit|\d ?gb?e\b|(?<![a-z])eth(?![a-z])|\bena\b", "ethernet"),
)
NAMES_OF_IB = _IB
#: texts on the network that say nothing
SILENT = NOT_STATED + r"|^\W*$|\bn/?a\b|\bnone\b|single[- ]node|nvlink|pcie"
#: one NIC's nominal line rate [Gbit/s] by its generation
RATES = (
    (r"\bxdr", 800.0), (r"ndr ?200", 200.0), (r"\bndr", 400.0), (r"hdr ?100", 100.0),
    (r"\bhdr", 200.0), (r"\bedr", 100.0), (r"\bfdr", 56.0), (r"\bqdr", 40.0), (r"\bddr", 20.0),
    (r"cn5000", 400.0), (r"omni[- ]?path|\bopa", 100.0), (r"slingshot[- ]?10", 100.0),
    (r"slingshot", 200.0), (r"\befa(?:v\d)?\b", 100.0),
)  # fmt: skip
#: line rates of one NIC that Ethernet has and InfiniBand hasn't [Gbit/s]
ETHERNET_RATES = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0)
#: line rates that NICs have [Gbit/s]
LINE_RATES = (1.0, 2.5, 5.0, 10.0, 16.0, 20.0, 25.0, 32.0, 40.0, 50.0, 56.0, 100.0, 200.0, 400.0,
              800.0)  # fmt: skip
#: TCP over Ethernet of unknown speed [Gbit/s], unless the text has one of the words in `FAST`
SLOW = 10.0
FAST = r"slingshot|\bcxi\b"
COUNTS = {"one": 1, "two": 2, "pair of": 2, "dual": 2, "three": 3, "four": 4, "quad": 4,
          "eight": 8}  # fmt: skip
