"""What a launch script says of nodes, processes, batches and strategies.

Flags: pytorch.org "torchrun"; huggingface/transformers TrainingArguments; deepspeed.ai "Getting
Started"; horovod.ai "Run Horovod"; SchedMD sbatch(1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpsim.core.record import Refused
from dpsim.measurements.launches import accelerated, making, megatron
from dpsim.measurements.launches.arguments import Invoked
from dpsim.measurements.launches.draft import Draft
from dpsim.measurements.launches.shell import ShellText
from dpsim.measurements.launches.values import Where, truth

#: names of flags by what they mean
_NODES = ("nnodes", "num_nodes", "num_machines")
_EACH = ("nproc_per_node", "num_gpus", "gpus_per_node")
_ALL = ("num_processes", "np", "num_proc")
_BATCH = ("per_device_train_batch_size", "micro_batch_size", "train_batch_size", "batch_size",
          "per_gpu_train_batch_size", "bs", "b", "batch")  # fmt: skip
_STEPS = ("gradient_accumulation_steps", "grad_accum_steps", "accumulate_grad_batches",
          "gradient_accumulation", "grad_acc_steps")  # fmt: skip
_TOKENS = ("seq_length", "max_seq_length", "max_seq_len", "seq_len", "block_size", "context_length",
           "model_max_length", "max_context_width", "sequence_length")  # fmt: skip
_MODEL = ("model_name_or_path", "model_name", "model_id", "model", "arch", "a")
#: samples that are made up: NVIDIA/Megatron-LM megatron/training/arguments.py, pytorch/examples
#: imagenet/main.py; both flags have no value
_MADE_UP = ("mock_data", "dummy")
_CONFIGS = ("deepspeed", "deepspeed_config", "ds_config", "config_file")
_FSDP = {"full": "FULL_SHARD", "full_shard": "FULL_SHARD", "shard_grad_op": "SHARD_GRAD_OP",
         "hybrid": "HYBRID_SHARD", "hybrid_shard": "HYBRID_SHARD", "no_shard": "NO_SHARD",
         "hybrid_full_shard": "HYBRID_SHARD"}  # fmt: skip
#: a flag where it stands in a line
_FLAG = re.compile(r"(?<![^\s\"'(=])--?([A-Za-z][^\s=\"')]*)")
_UNKNOWN = "the value is not in the file (the caller, another program or an if gives it)"
#: what flags that change nothing here are for, by their names
_WHY = (
    ("how processes find one another", re.compile(
        r"rdzv|master|node_rank|standalone|machine_rank|main_process|^H$|hostfile|container|role"
        r"|monitor|max_restarts|use_env|^l$|redirects|tee")),
    ("how samples are read; the key input is for it", re.compile(r"^dataloader|^num_workers$")),
    ("where data, checkpoints and logs are", re.compile(
        r"_path$|_file$|_dir$|^save|^load|log|tensorboard|wandb|report_to|checkpoint_|tokenizer"
        r"|dataset|^split$|^data|cache|^output|_output$|resume")),
    ("how it learns, not how fast it steps", re.compile(
        r"lr|learning_rate|weight_decay|adam|beta|warmup|clip|init_method|seed|dropout|loss_scale"
        r"|eps|momentum|scheduler")),
    ("how long it trains", re.compile(r"train_iters|train_samples|steps|epochs|^eval|valid|^val_")),
)  # fmt: skip


class Started:
    """The flags of a command, each of which is used or told as ignored."""

    def __init__(self, draft: Draft, script: ShellText, command: Invoked, where: Flags) -> None:
        self.draft, self.script, self.command, self.where = draft, script, command, where
        self.used: set[str] = set()

    def flag(self, names: Sequence[str], *, own: bool = False) -> tuple[str, str] | None:
        """The first of these flags that is given, and its value."""
        for name in names:
            if name in (found := self.command.own if own else self.command.given):
                self.used.add(name)
                return name, found[name]
        return None

    def number(
        self, names: Sequence[str], *, own: bool = False, least: int = 1
    ) -> tuple[int, str, int] | None:
        """The same as a whole number, with how it was said and its line; Refused below `least`."""
        found = self.flag(names, own=own)
        if found is None:
            return None
        name, value = found
        line, said = self.where(name), f"{self.command.spelt.get(name, name)} {value}"
        if re.fullmatch(r"\d{1,9}", value):
            if int(value) < least:
                raise Refused(f"line {line}: {said}: less than {least}")
            return int(value), said, line
        if re.fullmatch(r"[-+]?\d+", value):
            out = f"less than {least}" if value[0] == "-" else "more than 999,999,999"
            raise Refused(f"line {line}: {said[:100]}: {out}")
        self.draft.ignore(said, _UNKNOWN, line)
        self.draft.find(f"{said}: {_UNKNOWN}; set the key that it is for")
        return None

    def told(self, found: tuple[str, str]) -> tuple[str, int]:
        """How a flag was said, and its line."""
        name, value = found
        return f"{self.command.spelt.get(name, name)} {value}".strip()[:100], self.where(name)

    def fill(self) -> None:
        """Everything that the command says."""
        self._cluster()
        self._samples()
        if megatron.is_megatron(self.command.given):
            megatron.fill(self)
        else:
            self._tokens()
            self._strategy()
            self._batch()
            self._model()
            making.fill(self)
        for name, value in {**self.command.own, **self.command.given}.items():
            if name not in self.used:
                why = next((said for said, what in _WHY if what.search(name)), "no key of dpsim's")
                said = f"{self.command.spelt.get(name, name)} {value}".strip()
                self.draft.ignore(said[:100], why, self.where(name))

    def _samples(self) -> None:
        """Whether they are made up; what follows a flag is no value of it, but for yes or no."""
        found = self.flag(_MADE_UP)
        if found and found[1].startswith("$"):
            self.draft.ignore(self.told(found)[0], _UNKNOWN, self.told(found)[1])
        elif found and found[1].lower() in ("0", "false", "no"):
            self.draft.ignore(self.told(found)[0], "samples are read", self.told(found)[1])
        elif found:
            self.draft.take("input", {"synthetic": True}, *self.told(found))

    # -- nodes and processes ----------------------------------------------------------------------

    def _said_otherwise(self) -> None:
        """Numbers of GPUs in words: all of a node's, or those of a list."""
        for name, value in {**self.command.own, **self.command.given}.items():
            if name in _EACH and value in ("gpu", "auto"):
                self.used.add(name)
                why = "as many as a node has GPUs"
                self.draft.ignore(f"--{name.replace('_', '-')} {value}", why, self.where(name))
        for name in ("include", "exclude"):
            if self.command.launcher == "deepspeed" and name in self.command.own:
                said = f"--{name} {self.command.own[name]}"[:100]
                self.used.add(name)
                self.draft.find(f"{said}: set cluster.nodes and cluster.gpus_per_node")

    def _cluster(self) -> None:
        self._said_otherwise()
        nodes = self.number(_NODES, own=True) or self._directive("--nodes", "-N")
        each = self.number(tuple(n for n in _EACH if n not in self.used), own=True) or self._gpus()
        ranks = self.number(_ALL, own=True)
        if ranks and nodes and ranks[0] % nodes[0] == 0 and nodes[0] > 1:
            each = ranks[0] // nodes[0], ranks[1], ranks[2]
        if nodes:
            self.draft.take("cluster.nodes", *nodes)
        if each:
            self.draft.take("cluster.gpus_per_node", *each)
        if ranks and not nodes:
            self.draft.take("cluster.ranks", *ranks)
        elif ranks and nodes and nodes[0] == 1:
            self.draft.take("cluster.gpus_per_node", *ranks)
        if each and not nodes and not ranks:
            self.draft.assume("cluster.nodes", 1, "the file doesn't say how many")

    def _directive(self, *names: str) -> tuple[int, str, int] | None:
        for name in names:
            value, line = self.script.directives.get(name, ("", 0))
            if found := re.match(r"\d{1,9}\b", value):
                return int(found[0]), f"#SBATCH {name}={value}", line
        return None

    def _gpus(self) -> tuple[int, str, int] | None:
        """GPUs of a node as Slurm is asked for them."""
        for name in ("--gpus-per-node", "--gres"):
            value, line = self.script.directives.get(name, ("", 0))
            if found := re.fullmatch(r"(?:gpu:)?(?:[A-Za-z]\w*:)?(\d{1,4})", value):
                return int(found[1]), f"#SBATCH {name}={value}", line
        return None if self.command.launcher else self._directive("--ntasks-per-node")

    # -- what is trained, and how -----------------------------------------------------------------

    def _tokens(self) -> None:
        if found := self.number(_TOKENS):
            self.draft.tokens = found[0]
            self.draft.note(f"model.sequence_length: {found[0]} ({found[1]})", found[2])

    def _strategy(self) -> None:
        draft, line = self.draft, self.command.line
        if self.command.launcher == "accelerate":
            self._accelerate()
            return
        config = self.flag(_CONFIGS) or self.flag(_CONFIGS, own=True)
        sharding = self.flag(("sharding_strategy", "fsdp"))
        if config or self.command.launcher == "deepspeed":
            name = config[1] if config else "a file of its own"
            stage = self.number(("zero_stage",), least=0)
            if stage and not stage[0]:
                draft.take("strategy", {"kind": "ddp"}, stage[1], stage[2])
            elif stage:
                draft.take("strategy", {"kind": "zero", "stage": stage[0]}, stage[1], stage[2])
            else:
                draft.assume("strategy", {"kind": "zero", "stage": 1}, "DeepSpeed", line)
                draft.find(f"DeepSpeed's settings are in {name[:80] or 'a file of its own'}: dpsim "
                           "import reads that file too; stage 1 is assumed here")  # fmt: skip
        elif sharding:
            self._sharding(*sharding)
        elif self.command.launcher == "horovodrun":
            draft.take("strategy", {"kind": "horovod"}, "horovodrun", line)
        else:
            draft.assume("strategy", {"kind": "ddp"}, "nothing in the file says another", line)
        self._precision()

    def _sharding(self, name: str, value: str) -> None:
        word = value.split()[0].lower() if value.split() else "full_shard"
        said, line = f"{self.command.spelt.get(name, name)} {value}", self.where(name)
        self.draft.take("strategy", {"kind": "fsdp1"}, said, line)
        if "offload" in value.split():
            self.draft.find(f"{said}: parameters that live on the host are not modelled")
        if word in _FSDP:
            self.draft.take("strategy.sharding_strategy", _FSDP[word], said, line)
            if _FSDP[word] == "HYBRID_SHARD":
                each = self.draft.get("cluster.gpus_per_node") or 8
                self.draft.assume("strategy.shard", each, "shared inside a node")
            if name == "fsdp" and "auto_wrap" not in value.split():
                self.draft.take("strategy.wrap", "none", f"{said}, without auto_wrap", line)

    def _accelerate(self) -> None:
        """Flags of `accelerate launch` are the keys of its configuration."""
        own = self.command.own
        names = {"use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED"}
        kind = next((names[key] for key in names if key in own), "MULTI_GPU")
        data: dict[str, object] = {"distributed_type": kind}
        data["mixed_precision"] = own.get("mixed_precision") or self.command.given.get(
            "mixed_precision", "no"
        )
        parts = {"FSDP": ("fsdp_",), "DEEPSPEED": ("zero", "offload", "deepspeed", "gradient")}
        if prefix := parts.get(kind):
            inside = {key: value for key, value in own.items() if key.startswith(prefix)}
            data[f"{kind.lower()}_config"] = inside
            self.used |= set(inside)
        words = {key: value for key, value in own.items() if key.startswith("dynamo_")}
        if words:
            data["dynamo_config"] = words
        self.used |= {"mixed_precision", *words, *names, *_NODES, *_ALL}
        if file := self.flag(("config_file",), own=True):
            self.draft.find(f"accelerate's configuration is in {file[1][:80]}: dpsim import reads "
                            "that file too; what is said there is not taken here")  # fmt: skip
        accelerated.fill(self.draft, data, Where(""))

    def _precision(self) -> None:
        mixed = self.flag(("mixed_precision", "precision"))
        word = mixed[1].lower() if mixed else ""
        for name in ("bf16", "fp16"):
            given = self.flag((name,))
            on = given is not None and truth(given[1] or "true") is not False
            if on or name in word:
                at = name if given else "mixed_precision"
                pair = {"parameters": "fp32", "compute": name}
                self.draft.take("precision", pair, f"--{at}", self.where(at))
                return

    def _batch(self) -> None:
        if found := self.number(_BATCH):
            self.draft.take("batch.per_device", *found)
        else:
            self.draft.assume("batch.per_device", 1, "the file doesn't say how large a batch is")
        if found := self.number(_STEPS):
            self.draft.take("batch.accumulation", *found)
        given = self.flag(("gradient_checkpointing", "activation_checkpointing"))
        if given and truth(given[1] or "true"):
            self.draft.take("recompute", "full", f"--{given[0]}", self.where(given[0]))

    def _model(self) -> None:
        for name in _MODEL:
            value = self.command.given.get(name, "")
            known = self.draft.known(value) if value else ""
            if known and not self.draft.wanted.model:
                self.used.add(name)
                said = f"{self.command.spelt.get(name, name)} {value}"
                self.draft.named(known, said, self.where(name))
                return


class Flags:
    """On which line a flag stands."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.lstrip().startswith("#"):
                for found in _FLAG.finditer(line):
                    self._lines.setdefault(_flat(found[1]), number)

    def __call__(self, name: str) -> int:
        """The first line that has the flag `name`; 0 where none has."""
        return self._lines.get(_flat(name), 0)


def _flat(name: str) -> str:
    return name.replace("-", "_")
