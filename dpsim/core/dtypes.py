"""Dtypes: what numbers are called, and how many bytes one has."""

from __future__ import annotations

DTYPE_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}

#: formats of frozen matrices -> bytes an element.  nf4: 4 bits, a scale of 8 bits for 64 elements
#: and one of 32 bits for 256 of those (double quantisation; Dettmers et al., arXiv:2305.14314,
#: section 3: 0.127 bits of scales an element).  int8: the scales of rows are left out
QUANTISED = {"nf4": (4 + 8 / 64 + 32 / (64 * 256)) / 8, "int8": 1.0}


def stored_bytes(dtype: str) -> float:
    """Bytes of an element of a parameter as it is stored, quantised or not."""
    return QUANTISED.get(dtype) or DTYPE_BYTES[dtype]


def working_bytes(dtype: str) -> int:
    """Bytes of an element between the products that run in `dtype`: fp8 is a format of the
    operands of matrix products, and what norms, attention and residuals read and write is bf16
    (Micikevicius et al., arXiv:2209.05433; NVIDIA/TransformerEngine and pytorch/ao alike)."""
    return DTYPE_BYTES["bf16" if dtype == "fp8" else dtype]


def dtype_class(dtype: str) -> str:
    """ "half" for both 16-bit floats, which tensor cores multiply equally fast, else `dtype`."""
    return "half" if dtype in ("fp16", "bf16") else dtype
