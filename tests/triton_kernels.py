"""Triton kernels in tests: run on a GPU or in Triton's interpreter, and compiled for a GPU without one."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
runs_kernels = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy's, inside the interpreter
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton"),
    pytest.mark.usefixtures("triton_interpreter"),
]

POINTERS = {torch.float32: "*fp32", torch.float64: "*fp64", torch.float16: "*fp16"}
POINTERS |= {torch.int64: "*i64", torch.int32: "*i32", torch.bool: "*i1"}
OPTIONS = ("num_warps", "num_stages")
Launch = dict[str, Any]  # a kernel with the types of its arguments, as `COMPILE` reads it

COMPILE = """
import importlib, json, sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

for one in json.load(sys.stdin):
    kernel = getattr(importlib.import_module(one["module"]), one["kernel"])
    names = {name: (i,) for i, name in enumerate(kernel.arg_names)}
    constants = {names[name]: value for name, value in one["constants"].items()}
    aligned = {names[name]: [["tt.divisibility", 16]] for name in one["aligned"]}
    source = ASTSource(kernel, one["signature"], constants, aligned)
    print(json.dumps(compile(source, GPUTarget("cuda", 90, 32), one["options"]).asm["ttgir"]))
"""


@contextlib.contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Launch]]:
    """The launches in Triton's interpreter, each kind once; complete at the end."""
    from triton.runtime import interpreter

    found: list[Launch] = []
    run = interpreter.InterpretedFunction.run

    def recording(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        one = launch(self.fn, *args, **kwargs)
        if one not in found:
            found.append(one)
        run(self, *args, grid=grid, warmup=warmup, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(interpreter.InterpretedFunction, "run", recording)
        yield found


def launch(function: Any, *args: Any, **kwargs: Any) -> Launch:
    """What a call of a kernel is compiled from: ones are constants, and multiples of 16 are known as such."""
    options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
    signature, constants, aligned = {}, {}, []
    for name, value in inspect.signature(function).bind(*args, **kwargs).arguments.items():
        if "constexpr" in str(function.__annotations__.get(name)) or (type(value) is int and value == 1):
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = POINTERS[value.dtype]
            aligned += [name] * (value.data_ptr() % 16 == 0)
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
            aligned += [name] * (isinstance(value, int) and value % 16 == 0)
    return {
        "module": function.__module__,
        "kernel": function.__name__,
        "signature": signature,
        "constants": constants,
        "aligned": aligned,
        "options": options,
    }


def compiled(launches: list[Launch], cache: Path) -> list[str]:
    """The intermediate code of the kernels for an H100; this needs no GPU."""
    unset = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command, environment = [sys.executable, "-c", COMPILE], {**unset, "TRITON_CACHE_DIR": str(cache)}
    given = json.dumps(launches)
    done = subprocess.run(command, env=environment, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
