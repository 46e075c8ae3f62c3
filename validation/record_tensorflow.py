"""What the graph of BERT's own code moves, operation by operation, as TensorFlow makes it.

    python validation/record_tensorflow.py -o tests/data/tensorflow_graph.json

Wants TensorFlow (2.21 was used), which dpsim does not.  A part of a block is built with the
functions of google-research/bert, its gradient with tf.gradients; counted are operations that read
or write a whole input, and the elements of all that they read and write for each of it.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import tensorflow as tf

ROWS, WIDTH = 64, 256
v1: Any = tf.compat.v1


def norm(x: Any) -> tuple[Any, list[Any]]:
    gamma, beta = v1.get_variable("gamma", [WIDTH]), v1.get_variable("beta", [WIDTH])
    mean, variance = v1.nn.moments(x, [1], keep_dims=True)
    return v1.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12), [gamma, beta]


def activation(x: Any) -> tuple[Any, list[Any]]:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * v1.pow(x, 3))
    return x * (0.5 * (1.0 + v1.tanh(inner))), []


def scores(x: Any) -> tuple[Any, list[Any]]:
    return v1.nn.softmax(v1.multiply(x, 0.125) + v1.placeholder(tf.float32, [ROWS, 1])), []


def loss(x: Any) -> tuple[Any, list[Any]]:
    bias, labels = v1.get_variable("bias", [WIDTH]), v1.placeholder(tf.int32, [ROWS])
    told = v1.nn.log_softmax(v1.nn.bias_add(x, bias))
    return -v1.reduce_sum(told * v1.one_hot(labels, WIDTH), axis=[-1]), [bias]


def counted(build: Any) -> dict[str, list[float]]:
    """Operations of both passes, and elements for each of the input."""
    with v1.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [ROWS, WIDTH])
        y, parameters = build(x)
        ahead = [op for op in graph.get_operations() if "Initializer" not in op.name]
        known = set(graph.get_operations())
        left = [
            t.op for t in v1.gradients(y, [x, *parameters], v1.placeholder(tf.float32, y.shape))
        ]
        back: set[Any] = set()
        while left:
            op = left.pop()
            if op not in back and op not in known:
                back.add(op)
                left += [t.op for t in op.inputs]
        return {"forward": _moved(ahead), "backward": _moved(back)}


def _moved(operations: Any) -> list[float]:
    views = {"Identity", "Reshape", "Placeholder", "VariableV2", "Assign", "StopGradient"}
    found = [0, 0.0]
    for op in operations:
        shapes = [t.shape.as_list() for t in (*op.inputs, *op.outputs) if t.shape.rank is not None]
        sizes = [math.prod(shape) for shape in shapes if None not in shape]
        if op.type not in views and ROWS * WIDTH in sizes:
            found = [found[0] + 1, found[1] + sum(sizes) / (ROWS * WIDTH)]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", "--out", type=Path, required=True)
    v1.disable_v2_behavior()
    parts = {part.__name__: counted(part) for part in (norm, activation, scores, loss)}
    text = json.dumps({"tensorflow": tf.__version__, **parts}, indent=1)
    parser.parse_args().out.write_text(text + "\n", encoding="utf-8")
