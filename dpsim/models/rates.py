"""What shares of their peaks kernels reach on devices of each generation."""

from __future__ import annotations

from dpsim.machines.devices import Device

#: dtypes in which tensor cores run flash attention
HALF = ("bf16", "fp16", "fp8", "nvfp4")
#: shares of the dense 16-bit peak that large matrix products reach on devices of a generation, in
#: training: medians of measured shapes with 4,096 and more columns (ai-dynamo/aiconfigurator,
#: Apache-2.0: A100 0.77, H100 0.78, B200 0.65, L40S 0.57), which are bursts, times what loops
#: keep of that (A100 0.93, H100 0.91: MooreThreads/SimuMax's loops, stas00/ml-engineering's best
#: shapes; 0.92 on Blackwell), times 0.98 for gradients of weights, a third of all products,
#: which are 5 % slower (SimuMax on A100).  A block's twelve in 13.102 ms on a B300 are 0.65
#: (NVIDIA/TransformerEngine 8f2e6357 docs/examples/gemm_profiling).  Volta: inside 0.74 (Jia et
#: al., arXiv:1803.04014) to
#: 0.9 (forums.developer.nvidia.com/t/79781) of bursts times what loops keep on Ampere, 0.68 to
#: 0.82; chosen with published steps on V100 in view (docs/assumptions.md, A88).  CDNA 3 and 4: of
#: what a search for the best shape finds (MI300X 0.511, MI325X 0.600, MI355X 0.622:
#: stas00/ml-engineering at 744d01e1) 0.84, the mean of what the figures above are of it on A100 and
#: H100 (0.869, 0.803).  Of Turing nothing was measured: its tensor cores are Volta's
PRODUCTS = {
    "volta": 0.70, "turing": 0.70, "ampere": 0.70, "ada": 0.57, "hopper": 0.70, "blackwell": 0.59,
    "cdna3": 0.47, "cdna4": 0.52,
}  # fmt: skip
#: the same of a device by itself.  SimuMax's loops on a B200, of 1,000 W, keep 0.80 of bursts,
#: where B300, GB200 and GB300 may draw 1,200 to 1,400.  The others are boards whose power binds
#: less, or more, than that of those which their generation's share is of.  Two measurements tell:
#: bursts times 0.90, as above (RTX PRO 6000 0.75, T4 0.59: aiconfigurator, DeepBench), and the best
#: loop of 30 products of 1,024 to 10,240 times 0.82, which the shares above are of it in the mean
#: (A100 0.84, H100 0.80, L40S 0.74, B200 0.75 of the peak: zzc0721/torch-performance-test-data at
#: 07858687, database.md; RTX PRO 6000 0.83, T4 0.65, H20 0.96 and, of its issue 120, L4 0.59)
OWN = {
    "B200-SXM6-180GB": 0.52, "RTX PRO 6000 Blackwell Server Edition": 0.68,
    "H20-SXM5-96GB": 0.79, "Tesla T4": 0.53, "L4": 0.48,
}  # fmt: skip
#: the same of tensor cores that add up in fp32 at half the rate of others of their generation, as
#: those of GeForce and A10G do, so that neither operands nor power bind: in the mean of bursts
#: times 0.90 (RTX 4090 0.98, RTX 3090 0.86: casys-kaist/LLMServingSim at 5daddb21, MIT) and loops
#: times 0.82 (RTX 4090 1.00, 3090 1.07, 5090 1.14, 2080 0.97 of peaks at clocks that boards exceed,
#: A10G 0.99: zzc0721's, as above, and issue 126)
HALVED = 0.85
#: what products of large models keep of that in training, where clocks fall with the power that
#: they draw: chosen with published steps on H100 and H200 in view (docs/assumptions.md, A88); not
#: of devices of less than so many FLOP/s, as H20, whose power does not bind
LARGE, _BOUND = {"hopper": 0.92}, 3e14
#: the same of grouped products of experts, where they were measured: SimuMax's loops of
#: TransformerEngine on a B200, 36 shapes in three passes, are 4, 13 and 0 % off with it
GROUPED = {"blackwell": 0.52}
#: elements of a sum at which products reach half of what they reach of very long ones: kh of
#: k / (k + kh), fitted to the same tables of ai-dynamo/aiconfigurator (A100 140, L40S 138, H100 159
#: and H200 142, B200 61, B300 34, GB200 44, GB300 62); no table has Volta's, which is
#: Ampere's; ROCm/aiter's tuned tables of 22,272 shapes on MI300X (243) and 866 on MI355X (163).
#: `PRODUCTS` are of sums of `WIDE` elements
NARROW = {
    "volta": 140.0, "turing": 140.0, "ampere": 140.0, "ada": 138.0, "hopper": 150.0,
    "blackwell": 50.0, "cdna3": 243.0, "cdna4": 163.0,
}  # fmt: skip
WIDE = 4096.0
#: the same two of products in 32 bits.  Volta's fp32: 32 shapes of DeepBench on a V100 (500 and
#: more rows, columns and elements of a sum), up to 0.2 s each, reach 0.84 of the peak in the median
#: of all layouts, and half of that with sums of 33 +- 39 (baidu-research/DeepBench).  Ampere's tf32
#: reaches of its peak what 16 bits do of theirs (A100: 116 of 156 TFLOP/s beside 230 of 312,
#: mli/transformers-benchmarks), and with equal sums, for twice the bytes meet half the rate; later
#: generations' is taken to
SINGLE = {("volta", "fp32"): (0.84, 33.0)} | {
    (generation, "tf32"): (PRODUCTS[generation], NARROW[generation])
    for generation in ("ampere", "ada", "hopper", "blackwell")
}
#: shares of it that causal attention reaches forward and backward, with 2.5 times forward's FLOP in
#: backward.  flash: Dao, arXiv:2307.08691, and SimuMax's kernels on A100; Shah et al.,
#: arXiv:2407.08608 (H100: 35 to 40 %).  flash3: the same, and its tables at 4,096 tokens and more.
#: efficient: xformers' kernels in Dao's figures.  library: cuDNN's, which TransformerEngine takes
#: on Hopper, and which are as fast as flash3 there (Shah et al., figures 5 and 6); elsewhere flash.
#: On Blackwell both are the middle of TransformerEngine's on a B200 with 4,096 tokens (0.44, 0.37:
#: MooreThreads/SimuMax) and FlashAttention's (0.64, 0.50: its CuTe kernels, causal and not).
#: On CDNA 3 and 4 both are ROCm/aiter's: causal heads 128 wide in its table for MI300X and MI355X
ATTENTION = {
    "flash": {
        "ampere": (0.58, 0.48),
        "hopper": (0.37, 0.30),
        "blackwell": (0.54, 0.43),
        "cdna3": (0.39, 0.33),
        "cdna4": (0.47, 0.33),
    },
    "flash3": {"hopper": (0.65, 0.50)},
    "library": {
        "ampere": (0.58, 0.48),
        "hopper": (0.65, 0.50),
        "blackwell": (0.54, 0.43),
        "cdna3": (0.39, 0.33),
        "cdna4": (0.47, 0.33),
    },
    "efficient": {"ampere": (0.28, 0.22)},
}
#: share of the fp32 peak that products of stored scores reach in 16 bits where heads are no
#: multiple of eight wide: tensor cores want rows of 16 bytes (NVIDIA, Deep Learning Performance,
#: Matrix Multiplication, "Tensor Core Usage"), and other cores widen what they read.  From 80
#: blocks on 40 nodes of A100 (bigscience-workshop/bigscience, train/tr11-176B-ml/
#: chronicles-prequel.md): 208.2 s of a step with heads 150 wide and 147.4 with 216, of width 14,400
#: and 13,824, are 5.0e14 FLOP of scores a device in 45 s, 0.56; 78 blocks with heads 108 wide
#: beside 216 ("NHEADS comparison") 0.52.  Measured on Ampere alone; taken for all generations
UNALIGNED = 0.5
#: what a small kernel takes when a captured graph replays it [s]: 1.34 us on an A100, 1.26 on an
#: H200 (RRZE-HPC/gpu-benches, `gpu-small-kernels`)
GRAPH_LAUNCH = 1.34e-6


def knows(device: Device | None, dtype: str) -> bool:
    """Whether it is known what products in `dtype` reach on `device`."""
    return device is not None and _reached(device.generation, dtype) is not None


def reached(device: Device, dtype: str) -> tuple[float, float]:
    """Share of the peak in `dtype` that large products reach on `device`, and elements of a sum at
    which they reach half of it; KeyError where it is not known."""
    found = _reached(device.generation, dtype)
    if found is None:
        raise KeyError(f"products in {dtype} on {device.name}")
    halved = device.name.startswith("GeForce") or device.name == "A10G"
    own = HALVED if halved else OWN.get(device.name, found[0])
    return own if dtype in HALF or dtype == "tf32" else found[0], found[1]


def kept(device: Device, large: float) -> float:
    """What products of a model that is a `large` one (0 to 1) keep of that in training."""
    least = LARGE.get(device.generation, 1.0)
    return least**large if least < 1.0 and device.peak_for("bf16") >= _BOUND else 1.0


def _reached(generation: str, dtype: str) -> tuple[float, float] | None:
    if dtype in HALF and generation in PRODUCTS:
        return PRODUCTS[generation], NARROW[generation]
    return SINGLE.get((generation, dtype))
