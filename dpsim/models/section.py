"""The `model:` section of a scenario: a Hugging Face file, a bundled architecture, layers, or a
record of the user's own training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from dpsim.core import plugins, units
from dpsim.core.files import read_text
from dpsim.core.jsonfile import loads
from dpsim.core.marks import Mark
from dpsim.core.places import below
from dpsim.core.record import Check, Flag, Refused, Text, build, dump, json_schema, record
from dpsim.machines.devices import Device
from dpsim.models import AttentionWork, Layer, Model, Tensor
from dpsim.models.architectures import Architecture
from dpsim.models.configurations import bundled_models, config_text, section_of
from dpsim.models.huggingface import (
    Attention,
    Head,
    kind_of,
    positions_of,
    read_config,
    takes_length,
)
from dpsim.models.precision import Stored
from dpsim.models.recorded import model_of
from dpsim.models.recording import parse, same_device
from dpsim.models.text_lengths import varying
from dpsim.models.tuning import Tunable
from dpsim.models.zoo import check_name, expanded

Parameters = Annotated[int, Check(0, 10**13)]


@record
class AttentionSpec:
    """What ranks that split a sequence exchange for an explicit layer (`parallel.context`).

    queries    bytes per sample of queries, and as many of what attention puts out
    keys       bytes per sample of keys and values together
    share      of the layer's durations, what is over pairs of tokens (the rest is over tokens)
    heads, key_heads   of queries, and of keys and values; left out: as many as are needed
    causal     tokens look at those before them alone, so later tokens have more to do
    """

    queries: units.Bytes
    keys: units.Bytes
    share: Annotated[float, units.Unit("1", low=0.0, high=1.0)] = 1.0
    heads: Annotated[int, Check(1, 10**6)] | None = None
    key_heads: Annotated[int, Check(1, 10**6)] | None = None
    causal: Flag = True

    def work(self) -> AttentionWork:
        heads = self.heads or 0
        own = heads, self.key_heads or heads, self.causal
        return AttentionWork(self.queries, self.keys, self.share, *own, width=1.0)


@record
class LayerSpec:
    """One explicit layer; durations are per sample, `activation` is what its output sends.

    parameters  their number, or a list of the tensors: of each its number, or its shape as a list
                (`[[4096, 1024], 1024]`)
    experts            experts that its parameters are of, in equal parts; 0: none.  `forward` and
                       `backward` are then those of the tokens of one sample in all experts that
                       they are sent to
    experts_per_token  how many a token is sent to: so many times `activation` goes to experts, and
                       comes back
    trainable  false: its parameters are frozen
    attention  what of it is attention, where ranks split sequences between them
    """

    name: Text
    parameters: Parameters | tuple[Parameters | tuple[Parameters, ...], ...] = 0
    forward: units.Seconds | None = None
    backward: units.Seconds | None = None
    backward_input: units.Seconds | None = None
    backward_weight: units.Seconds | None = None
    activation: units.Bytes = 0.0
    dtype: Stored | None = None
    experts: Annotated[int, Check(0, 10**6)] = 0
    experts_per_token: Annotated[int, Check(1, 10**6)] = 1
    trainable: Flag = True
    attention: AttentionSpec | None = None

    def __post_init__(self) -> None:
        if self.experts_per_token > max(self.experts, 1):
            message = f"{self.experts_per_token} of {self.experts} experts"
            raise Refused(message, ("experts_per_token",))
        for shape in self._shapes if self.experts else ():
            if prod(shape) % self.experts:
                raise Refused(
                    f"{prod(shape):,} do not split into {self.experts} equal parts, one for each "
                    f"expert; a multiple of {self.experts} is accepted",
                    ("parameters",),
                )
        halves = (self.backward_input, self.backward_weight)
        if self.backward is not None and any(half is not None for half in halves):
            raise ValueError("give backward, or backward_input and backward_weight, not both")
        if self.backward is None and any(half is None for half in halves):
            raise ValueError("backward is missing (or backward_input and backward_weight)")
        if self.forward is None:
            raise ValueError("forward is missing")

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Of all tensors."""
        given = self.parameters
        listed = (given,) if isinstance(given, int) else given
        return [(one,) if isinstance(one, int) else one for one in listed]

    def layer(self) -> Layer:
        shapes = self._shapes
        backward, share = self.backward, 0.5
        if backward is None:
            backward = (self.backward_input or 0.0) + (self.backward_weight or 0.0)
            share = (self.backward_weight or 0.0) / backward if backward else 0.5
        return Layer(
            name=self.name,
            tensors=tuple(
                Tensor(f"t{k}", s, self.trainable) for k, s in enumerate(shapes) if all((s, *s))
            ),
            forward=self.forward,
            backward=backward,
            weight_share=share,
            sends=self.activation,
            dtype=self.dtype,
            experts=self.experts,
            chosen=self.experts_per_token if self.experts else 0,
            routed_bytes=self.activation * self.experts_per_token if self.experts else None,
            attended=None if self.attention is None else self.attention.work(),
        )


@record
class Explicit(Tunable):
    """Layers in registration order; `forward_order` names them as forward visits them."""

    layers: tuple[LayerSpec, ...]
    dtype: Stored = "fp32"
    forward_order: tuple[Text, ...] = ()
    name: Text = "explicit layers"

    def __post_init__(self) -> None:
        if not 1 <= len(self.layers) <= 100_000:
            raise Refused("a model has 1 … 100,000 layers", ("layers",))
        names = [layer.name for layer in self.layers]
        for name in self.forward_order:
            if name not in names:
                raise Refused(f"no layer is called {name!r}", ("forward_order",))
        self.model(Path())

    def model(self, base: Path) -> Model:
        names = [layer.name for layer in self.layers]
        return Model(
            name=self.name,
            layers=tuple(layer.layer() for layer in self.layers),
            forward_order=tuple(names.index(name) for name in self.forward_order),
            dtype=self.dtype,
        )


@record
class HuggingFace(Tunable):
    """`huggingface` is a config.json below the scenario's folder, or a bundled name.

    huggingface      a `config.json` (of transformers, or of a model of diffusers) below the
                     scenario's folder, or a bundled name
    sequence_length  tokens per sequence; of models of images, of the prompt if there is one, and it
                     may be left out
    attention        the kernel that attention runs in.  `flash`; `math`: the scores of all pairs of
                     tokens are stored, scale, mask and softmax are one kernel; `eager`: they are
                     stored, and each of torch's operations is a kernel; with execution.compile also
                     `efficient` (memory-efficient attention) and `flash3`; `sdpa`: flash where it
                     runs (16 bits, Ampere and newer), else efficient
    target_length    tokens of the decoder beside an encoder; left out: as many as the encoder's
    image_size       pixels along one side, of models of images; left out: the configuration's
    lengths          `fixed`; `varying`: texts of up to sequence_length tokens, of which nobody says
                     how long they are, in batches padded to their longest: every interval spans
                     that, by name (variability.sequence_length takes a distribution that is known)
    head             behind an encoder: `encoder` (its pooler, if any), `mlm`, `pretraining`,
                     `pretraining_masked` (masked words alone, 15 %), `replaced_tokens` (ELECTRA's,
                     with its generator), `classification`; left out: `encoder`, or `architectures`
    multi_token      true: the modules that predict further tokens, of which the configuration says
                     how many there are (`num_nextn_predict_layers`), are trained too
    """

    huggingface: Text
    sequence_length: Annotated[int, Check(1, 10_000_000)] | None = None
    attention: Attention = "flash"
    target_length: Annotated[int, Check(1, 10_000_000)] | None = None
    image_size: Annotated[int, Check(1, 100_000)] | None = None
    head: Head | None = None
    lengths: Literal["fixed", "varying"] = "fixed"
    multi_token: Flag = False

    def kind(self, base: Path) -> str:
        """What kind of model it is (dpsim.models.huggingface.kind_of)."""
        return kind_of(self._data(base))

    def positions(self, base: Path) -> int | None:
        """Tokens that a sequence may have (dpsim.models.huggingface.positions_of)."""
        return positions_of(self._data(base))

    def model(self, base: Path) -> Model:
        return _described(self, config_text(self.huggingface, base))

    def _data(self, base: Path) -> dict[str, Any]:
        return self.parsed(config_text(self.huggingface, base))

    def parsed(self, text: str) -> dict[str, Any]:
        """What is in the file, which holds `text`."""
        try:
            data = loads(text)
        except Refused as error:
            raise Refused(f"{self.huggingface} {error}", ("huggingface",)) from None
        if not isinstance(data, dict):
            raise Refused(f"{self.huggingface} holds no JSON object", ("huggingface",))
        return data


@lru_cache(maxsize=16)
def _described(spec: HuggingFace, text: str) -> Model:
    """The model of `spec`, whose file holds `text`.  A plan or a sweep asks for the same one with
    every point."""
    try:
        made = read_config(
            spec.parsed(text),
            sequence_length=spec.sequence_length,
            name=Path(spec.huggingface).stem,
            attention=spec.attention,
            target_length=spec.target_length,
            image_size=spec.image_size,
            head=spec.head,
            multi_token=spec.multi_token,
        )
        return made if spec.lengths == "fixed" else varying(made)
    except Refused as error:
        own = error.path and error.path[0] in spec.__dataclass_fields__
        if own and getattr(spec, str(error.path[0])) is None:  # what the scenario has to say
            raise
        if own:  # what it says does not go with the file
            raise Refused(f"{error.message}, in {spec.huggingface}", error.path) from None
        raise Refused(f"{spec.huggingface}: {error}", ("huggingface",)) from None


class LiveModel:
    """A model that Python code has made: what `dpsim.from_torch` gives.  No file can say it."""

    def __init__(self, made: Model) -> None:
        self.made = made

    def __deepcopy__(self, memo: Any) -> LiveModel:
        return self  # nothing in it changes


MAX_RECORD = 200_000_000  # bytes


@record
class FromRecord:
    """`record` is a file of `dpsim measure` below the scenario's folder.

    Durations are per sample, as recorded where the machine's device is the recorded one (or there
    is no machine), otherwise derived from the recorded FLOP and traffic; `times` says which.
    """

    record: Text
    times: Literal["recorded", "modelled"] | None = None

    def model(self, base: Path, device: Device | None = None) -> Model:
        """The layers of the record, for `device`."""
        try:
            found = parse(self._text(base))
            timed = self.times == "recorded"
            if self.times is None:
                timed = device is None or same_device(found.device.name, device.name)
            return model_of(found, timed=timed, name=found.model)
        except Refused as error:
            if error.path == ("record",):
                raise
            raise Refused(f"{self.record[:200]}: {error}", ("record",)) from None

    def _text(self, base: Path) -> str:
        path = below(base, self.record, "record")
        if not path.is_file():
            raise Refused(f"no file {self.record[:200]!r} here", ("record",))
        return read_text(path, MAX_RECORD)


class ModelSource(Mark):
    """Marks the field: which kind of model section it is follows from its keys."""

    def take(self, value: Any, file: bool) -> Any:
        known = isinstance(value, (Explicit, HuggingFace, FromRecord, LiveModel, Architecture))
        return value if known else make(value, file=file)

    def json_schema(self) -> dict[str, Any]:
        return _json_schema()


_ARCHITECTURE = plugins.Plugin("models", "name")


def make(data: Any, *, file: bool) -> Explicit | HuggingFace | FromRecord | Architecture:
    """The model section `data` as a record."""
    if not isinstance(data, Mapping):
        known = section_of(str(data))
        hint = f"; write {known}" if known else ""
        raise Refused(f"needs a mapping with 'huggingface', 'name', 'record' or 'layers'{hint}")
    if not {"layers", "huggingface", "record"} & data.keys():
        data = data if data.get("name") in plugins.names("models") else expanded(data)
    if "layers" in data:
        return build(Explicit, data, file=file)
    if "huggingface" in data:
        return build(HuggingFace, data, file=file)
    if "record" in data:
        return build(FromRecord, data, file=file)
    if "name" in data:
        if data["name"] in bundled_models():
            return _configured(data, file=file)
        check_name(str(data["name"]), plugins.names("models"), bundled_models())
        made: Architecture = _ARCHITECTURE.make(data, file=file)
        return made
    if "traced" in data:
        raise Refused("a torch module is given in Python (dpsim.from_torch), not in a file")
    raise Refused(
        "needs 'huggingface' (a config.json), 'name' (resnet50, …), 'record' (of dpsim measure) or "
        "'layers'"
    )


def _configured(data: Mapping[str, Any], *, file: bool) -> HuggingFace:
    """The section of a bundled configuration that is asked for by `name`."""
    name = data["name"]
    rest = {key: value for key, value in data.items() if key != "name"}
    if "sequence_length" not in rest and needs_length(name):
        raise Refused(f"is a configuration; write {section_of(name)}", ("name",))
    return build(HuggingFace, {"huggingface": name, **rest}, file=file)


def needs_length(name: str) -> bool:
    """Whether the bundled configuration `name` is of a model whose samples are texts."""
    return takes_length(loads(config_text(name, Path())))


def load(
    spec: Any, base: Path, device: Device | None = None, run: Callable[[Model], Model] | None = None
) -> Model:
    """The Model of a model section, on `device`, with its kernels as `run` makes them; files are
    looked up below `base`."""
    try:
        if isinstance(spec, FromRecord):
            made = spec.model(base, device)
        elif isinstance(spec, LiveModel):
            made = spec.made
        else:
            made = spec.model() if isinstance(spec, Architecture) else spec.model(base)
    except Refused as error:
        raise Refused(error.message, ("model", *error.path)) from None
    made = run(made) if run else made
    if isinstance(spec, FromRecord | LiveModel):
        return made
    own: Tunable = spec
    try:
        return own.tuned(made)
    except Refused as error:
        raise Refused(error.message, ("model", *error.path)) from None


def dump_model(spec: Any) -> Any:
    if isinstance(spec, LiveModel):
        return {"traced": spec.made.name, "parameters": spec.made.parameters}
    plain = dump(spec)
    return {"name": plugins.name_of(spec), **plain} if isinstance(spec, Architecture) else plain


def _json_schema() -> dict[str, Any]:
    own = [json_schema(cls) for cls in (HuggingFace, Explicit, FromRecord)]
    return {"oneOf": [*own, *_ARCHITECTURE.json_schema()["oneOf"]]}
