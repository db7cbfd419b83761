"""The first operator that made something non-finite out of finite inputs, and the way from there to the result.

Operators are seen by a dispatch mode, modules by hooks; nothing is replaced, so results stay as they are, bit for bit.
-inf alone is no fault: masks are made of it. It is told where a NaN or +inf came of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Operators that hand out memory without writing it: what is in it is nobody's result.
_UNWRITTEN = ("empty", "new_empty", "resize")

#: Bad results remembered; each keeps its tensor alive, so that its address stays its own.
_KEPT = 4096


@dataclass
class Seen:
    """One tensor: ``low``, ``high`` and ``absmax`` are over its finite values, None where it has none."""

    shape: list[int]
    dtype: str
    low: float | None
    high: float | None
    absmax: float | None
    nan: int
    inf: int
    minus_inf: int


@dataclass
class Step:
    """An operator whose result was not finite. ``node`` is the autograd node in the backward pass."""

    op: str
    module: str
    phase: str
    inputs: list[Seen]
    outputs: list[Seen]
    made_of: list[int] = field(default_factory=list)
    node: str = ""


@dataclass
class Trace:
    """``culprit``: the first step that made NaN or +inf of inputs without; ``path``: from there to the result, or to
    the last bad step where the result is finite."""

    finite: bool
    culprit: Step | None
    path: list[Step]
    bad_steps: int
    operators: int
    plain_s: float
    traced_s: float
    unchanged: bool

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


def seen(tensor: Tensor) -> Seen:
    """What a tensor holds."""
    values = tensor.detach()
    finite = values[torch.isfinite(values)]
    some = bool(finite.numel())
    return Seen(
        list(tensor.shape), str(tensor.dtype).removeprefix("torch."),
        float(finite.min()) if some else None, float(finite.max()) if some else None,
        float(finite.abs().max()) if some else None,
        int(torch.isnan(values).sum()), int(torch.isposinf(values).sum()), int(torch.isneginf(values).sum()),
    )  # fmt: skip


def _floats(tree: Any) -> list[Tensor]:
    return [t for t in tree_leaves(tree) if isinstance(t, Tensor) and t.is_floating_point()]


def is_bad(tensor: Tensor) -> bool:
    """NaN or +inf somewhere."""
    values = tensor.detach()
    return bool((torch.isnan(values) | torch.isposinf(values)).any()) if values.numel() else False


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator while it is on, forward and backward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []
        self.operators = 0
        self.phase = "forward"
        self.modules: list[str] = []
        self.injecting = False
        self._made: dict[int, int] = {}
        self._alive: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.operators += 1
        inputs = _floats((args, kwargs))
        mutable = func._schema.is_mutable
        before = [seen(t) if is_bad(t) else None for t in inputs] if mutable else []
        was_bad = [b is not None for b in before]
        result = func(*args, **kwargs)
        outputs = _floats(result)
        if mutable and not outputs:
            outputs = inputs
        bad = [t for t in outputs if is_bad(t)]
        if bad and not func._schema.name.split("::")[-1].lstrip("_").startswith(_UNWRITTEN):
            self._keep(func, inputs, was_bad if mutable else [is_bad(t) for t in inputs], bad)
        return result

    def _keep(self, func: Any, inputs: list[Tensor], inputs_bad: list[bool], bad: list[Tensor]) -> None:
        if len(self.steps) >= _KEPT:
            return
        parents = [
            self._made[address]
            for t, was in zip(inputs, inputs_bad, strict=True)
            if was and (address := t.untyped_storage().data_ptr()) in self._made
        ]
        node = torch._C._current_autograd_node()
        self.steps.append(
            Step(
                "inject" if self.injecting else str(func), self.modules[-1] if self.modules else "", self.phase,
                [seen(t) for t in inputs], [seen(t) for t in bad], sorted(set(parents)),
                "" if node is None else node.name(),
            )
        )  # fmt: skip
        for t in bad:
            self._made[t.untyped_storage().data_ptr()] = len(self.steps) - 1
            self._alive.append(t)

    def maker(self, tensor: Tensor) -> int | None:
        """The step that made a bad tensor."""
        return self._made.get(tensor.untyped_storage().data_ptr())

    def to_root(self, step: int) -> list[int]:
        """Steps from the first that has no bad input down to ``step``, along the earliest parents."""
        path = [step]
        while self.steps[path[-1]].made_of:
            parent = min(self.steps[path[-1]].made_of)
            if parent >= path[-1]:
                break
            path.append(parent)
        return path[::-1]


@contextmanager
def _named_modules(recorder: Recorder, inject: str | None) -> Iterator[list[str]]:
    """Keeps ``recorder.modules`` the stack of modules that run; yields the names met. ``inject`` puts an infinity into
    the first value that the module of that name returns."""
    names: dict[nn.Module, str] = {}
    met: list[str] = []

    def enter(module: nn.Module, _: Any) -> None:
        if module not in names:
            root = recorder.modules[0] if recorder.modules else ""
            names.update(
                {m: n or type(module).__name__ for n, m in module.named_modules() if not root or m not in names}
            )
        recorder.modules.append(names[module])
        met.append(names[module])

    def leave(module: nn.Module, _: Any, output: Any) -> Any:
        if names.get(module) == inject and inject is not None and isinstance(output, Tensor):
            recorder.injecting = True
            output = output.clone()
            with torch.no_grad():
                output.view(-1)[:1].fill_(torch.inf)
            recorder.injecting = False
            recorder.modules.pop()
            return output
        recorder.modules.pop()
        return None

    hooks = [
        nn.modules.module.register_module_forward_pre_hook(enter),
        nn.modules.module.register_module_forward_hook(leave),
    ]
    try:
        yield met
    finally:
        for hook in hooks:
            hook.remove()


class NoSuchModule(ValueError):
    """``--inject`` names no module that ran."""


def trace(function: Callable[[], Any], *, backward: bool = False, inject: str | None = None) -> Trace:
    """Run ``function`` plainly, with tracing, and plainly again for the overhead.

    With ``backward`` the gradients of the sum of its results count as results too. Random numbers start alike
    each time. Raises :class:`NoSuchModule`, and what ``function`` raises."""
    state = torch.random.get_rng_state()
    plain = _everything(function(), backward)
    torch.random.set_rng_state(state)
    with Recorder():  # the first dispatch mode of a process imports for seconds: not a cost of tracing
        is_bad(torch.ones(1) + 1)
    recorder = Recorder()
    start = time.perf_counter()
    with _named_modules(recorder, inject) as met:
        with recorder:
            result = function()
        results = _floats(result)
        if backward:
            recorder.phase, recorder.modules = "backward", []
            results += _gradients(results, recorder)
    traced_s = time.perf_counter() - start
    torch.random.set_rng_state(state)
    start = time.perf_counter()
    _everything(function(), backward)
    plain_s = time.perf_counter() - start
    if inject is not None and inject not in met:
        raise NoSuchModule(f"--inject: no module {inject!r} ran; there are {', '.join(dict.fromkeys(met)) or 'none'}")
    bad = [t for t in results if is_bad(t)]
    makers = [m for t in bad if (m := recorder.maker(t)) is not None]
    last = makers[0] if makers else (len(recorder.steps) - 1 if recorder.steps else None)
    path = [recorder.steps[n] for n in recorder.to_root(last)] if last is not None else []
    return Trace(
        finite=not bad and all(bool(torch.isfinite(t).all()) for t in results),
        culprit=path[0] if path else None,
        path=path,
        bad_steps=len(recorder.steps),
        operators=recorder.operators,
        plain_s=plain_s,
        traced_s=traced_s,
        unchanged=inject is not None or _same(plain, results),
    )


def _everything(result: Any, backward: bool) -> list[Tensor]:
    found = _floats(result)
    return found + _gradients(found, None) if backward else found


def _gradients(results: list[Tensor], recorder: Recorder | None) -> list[Tensor]:
    """Gradients of the sum of the results for every leaf of their graph."""
    roots = [t for t in results if t.requires_grad]
    if not roots:
        raise ValueError("--backward: no result requires a gradient")
    leaves = _leaves(roots)
    for leaf in leaves:
        leaf.grad = None
    if recorder is None:
        torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])
    else:
        with recorder:
            torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def _leaves(roots: list[Tensor]) -> list[Tensor]:
    """Leaf tensors of a graph in a fixed order."""
    found: list[Tensor] = []
    todo: list[Any] = [t.grad_fn if t.grad_fn is not None else t for t in roots]
    met: set[Any] = set()
    while todo:
        node = todo.pop(0)
        if node is None or node in met:
            continue
        met.add(node)
        if isinstance(node, Tensor):
            found.append(node)
        elif hasattr(node, "variable"):
            found.append(node.variable)
        else:
            todo += [parent for parent, _ in node.next_functions]
    return found


def _same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(
        x.shape == y.shape and x.dtype == y.dtype and bool(((x == y) | (torch.isnan(x) & torch.isnan(y))).all())
        for x, y in zip(a, b, strict=True)
    )
