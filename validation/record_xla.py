"""Record which all-reduces XLA combines when it compiles a data-parallel step for a GPU.

    python validation/record_xla.py tests/data/xla/combined.json

Needs jax with its CUDA plug-in (`pip install "jax[cuda12]"`), but no GPU: the step is compiled
ahead of time for four H100, which XLA knows from the description below, and not run.  Every case is
a list of leaves of the gradients (dtype, elements).  What is recorded is the list of all-reduces of
the compiled program (dtype, elements), sorted.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from _record import target

#: H100 SXM, as cudaGetDeviceProperties tells it; the combiner looks at none of it
DEVICE = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84942979072 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
#: a threshold of its own, and XLA's default
THRESHOLDS = (None, 10 * 1024 * 1024)
NAMES = {"f32": "fp32", "bf16": "bf16"}
Leaf = tuple[str, int]


def cases(count: int, seed: int) -> list[list[Leaf]]:
    """Random leaves; sizes are distinct, so that a sum tells its members."""
    draw = random.Random(seed)
    found: list[list[Leaf]] = [[("f32", mib * 1024 * 1024 // 4) for mib in (10, 10, 15, 20, 40, 5)]]
    for _ in range(count - 1):
        size = draw.choice((4, 9, 20, 40))
        mixed = draw.random() < 0.5
        found.append(
            [
                ("bf16" if mixed and draw.random() < 0.4 else "f32", int(10 ** draw.uniform(2, 7)))
                for _ in range(size)
            ]
        )
    return found


def record(leaves: list[Leaf]) -> list[Leaf]:
    """The all-reduces of the compiled step."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax._src import xla_bridge
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    if "cuda" not in xla_bridge._topology_factories:
        xla_bridge.discover_pjrt_plugins()
    topology = topologies.get_topology_desc(platform="cuda", topology="1x1x4", target_config=DEVICE)
    mesh = Mesh(np.array(topology.devices).reshape(4), ("data",))

    def loss(parameters: dict[str, Any], x: Any) -> Any:
        for name in sorted(parameters):
            leaf = parameters[name].astype(jnp.float32)
            x = jnp.tanh(x * leaf.sum() + (leaf**2).sum())
        return (x**2).mean()

    def step(parameters: dict[str, Any], x: Any) -> Any:
        gradients = jax.lax.pmean(jax.grad(loss)(parameters, x), "data")
        return jax.tree.map(lambda a, b: a - 0.1 * b, parameters, gradients)

    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    kinds = {"f32": jnp.float32, "bf16": jnp.bfloat16}
    parameters = {
        f"p{i:03d}": jax.ShapeDtypeStruct((size,), kinds[dtype], sharding=whole)
        for i, (dtype, size) in enumerate(leaves)
    }
    x = jax.ShapeDtypeStruct((32,), jnp.float32, sharding=split)
    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False
    )
    return reduced(jax.jit(mapped).lower(parameters, x).compile().as_text())


def reduced(text: str) -> list[Leaf]:
    """(dtype, elements) of every all-reduce of a compiled program."""
    found = []
    for line in text.splitlines():
        shape = re.search(r"= (.*?) all-reduce(?:-start)?\(.*replica_groups", line)
        if shape:
            parts = re.findall(r"(f32|bf16)\[(\d+)\]", shape[1])
            found.append((parts[0][0], sum(int(size) for _, size in parts)))
    return sorted(found)


def one_threshold(threshold: int | None) -> dict[str, Any]:
    """All cases under one threshold; flags are read once in a process."""
    import jaxlib

    done = [
        {
            "leaves": [[NAMES[d], n] for d, n in leaves],
            "combined": [[NAMES[d], n] for d, n in record(leaves)],
        }
        for leaves in cases(8, seed=threshold or 0)
    ]
    return {"jaxlib": jaxlib.__version__, "threshold": threshold, "cases": done}


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one_threshold(int(sys.argv[2]) or None)))
        return 0
    where = Path(target(__doc__))
    found = []
    for threshold in THRESHOLDS:
        flag = f"--xla_gpu_all_reduce_combine_threshold_bytes={threshold}" if threshold else ""
        settings = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "XLA_FLAGS": flag}
        done = subprocess.run(
            [sys.executable, __file__, "--one", str(threshold or 0)],
            env=os.environ | settings, stdout=subprocess.PIPE, check=True, text=True,
        )  # fmt: skip
        found.append(json.loads(done.stdout.splitlines()[-1]))
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
