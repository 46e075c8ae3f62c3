"""Run the script with torch patched, and write what was recorded."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import types
from dataclasses import dataclass

from . import Stop, patches
from .document import write
from .recorder import Recorder


@dataclass(frozen=True)
class Options:
    """What to run (`kind`: script, module or call; `target` says which), and how to record.

    After `warmup` iterations, `steps` are timed as they are and `steps` more with hooks on every
    layer and gradient; with `flops` one more is counted.  The document goes to `out`.
    """

    kind: str
    target: str
    world_size: int
    steps: int
    warmup: int
    flops: bool
    out: str


def main(file: str, arguments: list[str]) -> int:
    """Run what the options in `file` say; returns the exit code."""
    with open(file, encoding="utf-8") as text:
        options = Options(**json.load(text))
    sys.argv = [options.target, *arguments]
    recorder = Recorder(options)
    patches.install_on_import(recorder)
    try:
        _run(options)
    except Stop as stop:
        # the script was stopped in its midst: no exit handler, thread or worker of it may go on
        os._exit(write(recorder, str(stop)))
    return write(recorder)


def _run(options: Options) -> None:
    """Run the target until it ends; a normal exit of the script is an end like another."""
    try:
        if options.kind == "script":
            _script(options.target)
        elif options.kind == "module":
            sys.path.insert(0, os.getcwd())
            runpy.run_module(options.target, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.getcwd())
            module, _, function = options.target.partition(":")
            getattr(importlib.import_module(module), function)()
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


def _script(path: str) -> None:
    """Run the file as Python does.  (runpy.run_path would take `__main__` away at its end, and
    with it what the script's classes are pickled by.)"""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    exec(code, module.__dict__)
