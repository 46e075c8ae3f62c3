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


#: formats of the operands of matrix products alone -> bytes an element.  nvfp4: 4 bits and a scale
#: of 8 for 16 of them (NVIDIA et al., arXiv:2509.25149, section 2; one fp32 a tensor is left out)
OPERANDS = {"fp8": 1.0, "nvfp4": (4 + 8 / 16) / 8}


def operand_bytes(dtype: str) -> float:
    """Bytes of an element of an operand of products that run in `dtype`."""
    return OPERANDS.get(dtype) or DTYPE_BYTES[dtype]


def rest_of(dtype: str) -> str:
    """The dtype of what does not run in that of products, where these have a format of their own:
    what norms, attention and residuals read and write is bf16 (Micikevicius et al.,
    arXiv:2209.05433; NVIDIA et al., arXiv:2509.25149; NVIDIA/TransformerEngine and pytorch/ao
    alike)."""
    return "bf16" if dtype in OPERANDS else dtype


def working_bytes(dtype: str) -> int:
    """Bytes of an element between the products that run in `dtype`."""
    return DTYPE_BYTES[rest_of(dtype)]


def dtype_class(dtype: str) -> str:
    """ "half" for both 16-bit floats, which tensor cores multiply equally fast, else `dtype`."""
    return "half" if dtype in ("fp16", "bf16") else dtype
