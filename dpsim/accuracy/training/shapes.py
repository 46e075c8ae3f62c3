"""Usual proportions of decoders, by which stand-ins are made."""

from __future__ import annotations

#: parameters without embeddings, width, blocks (Brown et al., arXiv:2005.14165, table 2.1; the last
#: two: Smith et al., arXiv:2201.11990, and Megatron's 1T)
SHAPES = (
    (85e6, 768, 12), (302e6, 1024, 24), (680e6, 1536, 24), (1.21e9, 2048, 24),
    (2.52e9, 2560, 32), (6.44e9, 4096, 32), (12.6e9, 5120, 40), (29.6e9, 7168, 48),
    (65e9, 9216, 64), (174e9, 12288, 96), (528e9, 20480, 105), (1007e9, 25600, 128),
)  # fmt: skip
#: the same of small ones (Biderman et al., arXiv:2304.01373, table 1)
SMALL = ((1.19e6, 128, 6), (4.74e6, 256, 6), (18.9e6, 512, 6))
