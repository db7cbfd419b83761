"""A kernel launch as data: it can be run, or compiled for a GPU that is not there.

The type of every argument is worked out here in the way that Triton's own launcher does it, so that a launch made
with tensors on the device ``meta`` compiles to what the same call on a GPU would run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

#: Triton's names of element types.
ELEMENTS: dict[torch.dtype, str] = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e5m2: "fp8e5",
    torch.int32: "i32",
    torch.int64: "i64",
}

Signature = tuple[dict[str, str], dict[str, Any], dict[tuple[int, ...], list[list[Any]]]]


@dataclass(frozen=True)
class Launch:
    """``kernel[grid](**arguments, **options)``. ``grid`` has one number; nothing is launched where it is 0.

    ``arguments`` are by name, constexpr ones included; ``options`` are num_warps, num_stages and the like. ``problem``
    says in shared parameter names what it is launched for, where the launch is one of those that ship.
    """

    kernel: Any
    grid: int
    arguments: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    problem: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the kernel as profilers show it."""
        return str(self.kernel.__name__)

    def run(self) -> None:
        """Queue the kernel on the current stream of the device that its tensors are on."""
        if self.grid:
            tensor = next(x for x in self.arguments.values() if isinstance(x, torch.Tensor))
            with torch.cuda.device_of(tensor):  # type: ignore[no-untyped-call]
                self.kernel[(self.grid,)](**self.arguments, **self.options)

    def signature(self) -> Signature:
        """(types by name, constants by name, attributes by position) as ``triton.compiler.ASTSource`` takes them."""
        types: dict[str, str] = {}
        constants: dict[str, Any] = {}
        attributes: dict[tuple[int, ...], list[list[Any]]] = {}
        for n, parameter in enumerate(self.kernel.params):
            value = self.arguments[parameter.name]
            if parameter.is_constexpr or value is None:
                types[parameter.name], constants[parameter.name] = "constexpr", value
            elif type(value) is int and value == 1 and not parameter.do_not_specialize:
                types[parameter.name], constants[parameter.name] = "constexpr", 1
            else:
                types[parameter.name] = _type(value)
                if not parameter.do_not_specialize and _aligned(value):
                    attributes[(n,)] = [["tt.divisibility", 16]]
        return types, constants, attributes


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"*{ELEMENTS[value.dtype]}"
    if isinstance(value, TensorDescriptor):
        return f"tensordesc<{ELEMENTS[value.base.dtype]}{list(value.block_shape)}>"
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    if isinstance(value, float):
        return "fp32"
    raise TypeError(f"{type(value).__name__} is no kernel argument")


def _aligned(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        # A tensor without storage stands for one from the allocator, which aligns to more than 16 bytes.
        return value.device.type == "meta" or value.data_ptr() % 16 == 0
    return type(value) is int and value % 16 == 0
