"""Dtypes: what numbers are called, and how many bytes one has."""

from __future__ import annotations

DTYPE_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}


def working_bytes(dtype: str) -> int:
    """Bytes of an element between the products that run in `dtype`: fp8 is a format of the
    operands of matrix products, and what norms, attention and residuals read and write is bf16
    (Micikevicius et al., arXiv:2209.05433; NVIDIA/TransformerEngine and pytorch/ao alike)."""
    return DTYPE_BYTES["bf16" if dtype == "fp8" else dtype]


def dtype_class(dtype: str) -> str:
    """ "half" for both 16-bit floats, which tensor cores multiply equally fast, else `dtype`."""
    return "half" if dtype in ("fp16", "bf16") else dtype
