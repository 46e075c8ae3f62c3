"""Mask R-CNN on a ResNet-50 with a feature pyramid, as torchvision has it.

Sources: He et al., arXiv:1703.06870; names, registration order and defaults as in pytorch/vision
`torchvision/models/detection/mask_rcnn.py`, `faster_rcnn.py` and `rpn.py`.
"""

from __future__ import annotations

from typing import Annotated

from dpsim.core.record import Check, record
from dpsim.models import Layer, Model
from dpsim.models.architectures import Architecture
from dpsim.models.architectures.resnet import ResNet
from dpsim.models.image_layers import Plane
from dpsim.models.layer_sum import LayerSum
from dpsim.models.pyramid import WIDTH, backbone, pyramid, shared

#: boxes that are tried at every place of a level, by shape (`rpn_anchor_generator`)
_ANCHORS = 3
#: places along one side of what is cut out for a box and for a mask, and width of the box head
_BOX, _MASK, _HIDDEN = 7, 14, 1024
#: convolutions of the mask head
_DEEP = 4
#: points along each side of a place that are read between four neighbours (`sampling_ratio`), whose
#: neighbours the caches hold: reads of one element each per element that is cut out
_POINTS = 4


@record
class MaskRCNN(Architecture):
    """Mask R-CNN on ResNet-50: 44,401,393 parameters, 0.54 TFLOP forward as it is trained.

    image_size    pixels along one side of a square with as many pixels as an image has, padded:
                  1,024 for COCO at 800 x 1,333
    classes       classes of objects, that of none among them
    rois          regions of an image whose boxes are learnt
    masks         regions of an image whose masks are learnt; 0: Faster R-CNN, without that head

    Norms and the first stage of the backbone are frozen.  Choosing regions (resizing, anchors,
    non-maximum suppression, matching, sampling) is no work here, so steps are predicted too short:
    torchvision 0.28 dispatches 640 operations more forward for two images and 1,010 for four, and
    waits for the device 73 and 135 times.  Calibrate on a measured step.
    """

    image_size: Annotated[int, Check(64, 8192)] = 1024
    classes: Annotated[int, Check(2, 10**5)] = 91
    rois: Annotated[int, Check(1, 10**5)] = 512
    masks: Annotated[int, Check(0, 10**5)] = 128

    def model(self) -> Model:
        """Backbone, pyramid, region proposals, boxes and masks, in registration order."""
        body = backbone(ResNet(depth=50, image_size=self.image_size))
        above, levels = pyramid(body.stages)
        coarsest = levels[-1].after(WIDTH, 1, 2, 0)
        layers = [*body.layers, *above, *_proposals([*levels, coarsest]), *self._boxes()]
        if self.masks:
            layers += self._masks()
        name = "mask_rcnn_resnet50_fpn" if self.masks else "faster_rcnn_resnet50_fpn"
        return Model(name=name, layers=tuple(layers), sample="image",
                     buffers=(("fp32", body.buffers),))  # fmt: skip

    def _boxes(self) -> list[Layer]:
        """Two matrices over each region, and two more for its class and its box."""
        path, cut = "roi_heads.box_head", WIDTH * _BOX**2
        first = _cut(LayerSum(f"{path}.fc6"), self.rois * cut)
        first.matrix(f"{path}.fc6", self.rois, _HIDDEN, cut).activation(self.rois * _HIDDEN)
        found = [first.layer(read=self.rois * cut, wrote=self.rois * _HIDDEN)]
        ends = (
            (f"{path}.fc7", _HIDDEN),
            ("roi_heads.box_predictor.cls_score", self.classes),
            ("roi_heads.box_predictor.bbox_pred", 4 * self.classes),
        )
        for name, out in ends:
            one = LayerSum(name).matrix(name, self.rois, out, _HIDDEN)
            if name.endswith("fc7"):
                one.activation(self.rois * out)
            found.append(one.layer(read=self.rois * _HIDDEN, wrote=self.rois * out))
        return found

    def _masks(self) -> list[Layer]:
        """Four convolutions over each region, one that doubles its size, and one for classes."""
        plane, found = Plane(WIDTH, _MASK), []
        for k in range(_DEEP):
            name = f"roi_heads.mask_head.{k}.0"
            one = LayerSum(name)
            if k == 0:
                _cut(one, plane.elements * self.masks)
            found.append(self._over(one, plane, plane, 3))
        name, large = "roi_heads.mask_predictor.conv5_mask", Plane(WIDTH, 2 * _MASK)
        # each place makes 2 x 2: a matrix from its channels to four times as many
        found.append(self._over(LayerSum(name), plane, large, 2, flop=plane.size**2))
        out = Plane(self.classes, 2 * _MASK)
        name = "roi_heads.mask_predictor.mask_fcn_logits"
        found.append(self._over(LayerSum(name), large, out, 1, active=False))
        return found

    def _over(
        self, one: LayerSum, read: Plane, out: Plane, kernel: int, *,
        active: bool = True, flop: int | None = None,
    ) -> Layer:  # fmt: skip
        """A convolution over every region that has a mask; `flop`: places of its window."""
        n, places = self.masks, out.size**2 if flop is None else flop
        shape = (out.channels, read.channels, kernel, kernel)
        one.own(f"{one.name}.weight", *shape).own(f"{one.name}.bias", out.channels)
        work = 2.0 * kernel**2 * read.channels * out.channels * places
        one.product(n * work, n * read.elements, n * out.elements)
        if active:
            one.activation(n * out.elements, kept=False)
        return one.layer(read=n * read.elements, wrote=n * out.elements)


def _proposals(levels: list[Plane]) -> list[Layer]:
    """What says of every place of every level whether there is an object, and where."""
    head, path = "rpn.head.conv.0.0", "rpn.head"
    return [
        shared(head, levels, WIDTH, 3, active=True),
        shared(f"{path}.cls_logits", levels, _ANCHORS, 1, active=False),
        shared(f"{path}.bbox_pred", levels, 4 * _ANCHORS, 1, active=False),
    ]


def _cut(one: LayerSum, elements: float) -> LayerSum:
    """Regions cut out of the levels (RoIAlign)."""
    return one.pooled(_POINTS * elements, elements)
