"""Image networks, layer by layer: what a convolution and the operations behind it come to.

One layer is a convolution (or matrix) with its norm, activation, gate and addition; the rules of
work, traffic and memory are those of `layer_sum`.  Layers are appended in the order in which
torchvision registers them, which is mostly that of forward.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dpsim.models import Layer, Model
from dpsim.models.image_layers import Plane
from dpsim.models.layer_sum import LayerSum


@dataclass
class ImageNetwork:
    """Layers so far, the plane that the next one reads, and the block that they are of."""

    plane: Plane
    layers: list[Layer] = field(default_factory=list)
    unit: str = ""

    def convolution(
        self,
        name: str,
        channels: int,
        kernel: int | tuple[int, int] = 3,
        *,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        norm: str = "",
        active: bool = True,
        add: bool = False,
        bias: bool | None = None,
        source: Plane | None = None,
    ) -> Plane:
        """A convolution with what follows it; `padding` keeps the size if left out, `norm` names
        its batch normalisation (it has a bias where there is none, unless `bias` says otherwise),
        `active`: an in-place activation follows, `add`: it is added to something before that."""
        read = source or self.plane
        wide = (kernel, kernel) if isinstance(kernel, int) else kernel
        # an uneven kernel keeps its size along the longer side; its padding is as uneven
        edge = (max(wide) - 1) // 2 if padding is None else padding
        out = read.after(channels, max(wide), stride, edge)
        sum_ = LayerSum(name, self.unit, first=not self.layers)
        bias = not norm if bias is None else bias
        sum_.convolution(name, read, out, wide, groups=groups, bias=bias)
        if norm:
            sum_.norm(norm, out.elements, channels, batch=True)
        if add:
            sum_.add(out.elements)
        if active:
            sum_.activation(out.elements, kept=False)
        self.layers.append(sum_.image_layer(read=read.elements, wrote=out.elements))
        self.plane = out
        return out

    def squeeze(self, name: str, inner: int, *, names: tuple[str, str] = ("fc1", "fc2")) -> None:
        """Squeeze and excitation (Hu et al., arXiv:1709.01507): every channel times a gate that
        two small matrices make of the means of all."""
        plane, channels = self.plane, self.plane.channels
        point = Plane(channels, 1)
        sum_ = LayerSum(name, self.unit).pooled(plane.elements, channels)
        sum_.convolution(f"{name}.{names[0]}", point, Plane(inner, 1), (1, 1), bias=True)
        sum_.activation(inner)
        sum_.convolution(f"{name}.{names[1]}", Plane(inner, 1), point, (1, 1), bias=True)
        sum_.activation(channels).scaled(plane.elements)
        self.layers.append(sum_.image_layer(read=plane.elements, wrote=plane.elements))

    def normed(self, name: str, *, active: bool = True, source: Plane | None = None) -> None:
        """A batch normalisation on its own, with an activation."""
        plane = source or self.plane
        sum_ = LayerSum(name, self.unit)
        sum_.norm(name, plane.elements, plane.channels, batch=True)
        if active:
            sum_.activation(plane.elements, kept=False)
        self.layers.append(sum_.image_layer(read=plane.elements, wrote=plane.elements))
        self.plane = plane

    def pool(self, name: str, kernel: int, stride: int, padding: int = 0, *, maximum: bool = True,
             source: Plane | None = None) -> Plane:  # fmt: skip
        """A pooling with a window."""
        read = source or self.plane
        out = read.after(read.channels, kernel, stride, padding)
        return self._pooled(name, read, out, maximum)

    def average(self, name: str, size: int = 1) -> Plane:
        """An average pooling to `size` x `size`, whatever the size before."""
        return self._pooled(name, self.plane, Plane(self.plane.channels, size), False)

    def joined(self, channels: int) -> None:
        """Branches side by side, `channels` together; copying them is traffic of the next layer."""
        self.plane = Plane(channels, self.plane.size)

    def linear(self, name: str, out: int, *, active: bool = False, dropout: bool = False) -> None:
        """A matrix over all that there is, with an activation or dropout behind it."""
        read = self.plane.elements
        sum_ = LayerSum(name, self.unit).matrix(name, 1, out, read)
        if active:
            sum_.activation(out, kept=False)
        if dropout:
            sum_.dropout(out)
        self.layers.append(sum_.image_layer(read=read, wrote=out))
        self.plane = Plane(out, 1)

    def model(self, name: str) -> Model:
        """All of it, in the order in which it was described."""
        norms = [layer.batch_norm for layer in self.layers if layer.batch_norm]
        buffers = (("fp32", 2 * sum(norms)), ("int64", len(norms))) if norms else ()
        return Model(name=name, layers=tuple(self.layers), sample="image", buffers=buffers)

    def _pooled(self, name: str, read: Plane, out: Plane, maximum: bool) -> Plane:
        sum_ = LayerSum(name, self.unit).pooled(read.elements, out.elements, maximum=maximum)
        self.layers.append(sum_.image_layer(read=read.elements, wrote=out.elements))
        self.plane = out
        return out
