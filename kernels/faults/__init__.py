"""Faulty implementations, kept so that the service can prove that it would find them. Imports no torch.

``ATTNWATCH_FAULTS=name[,name...]`` puts the named faults in the place of the sound implementation, under the sound
backend's own name, as a bad release of it would. The variable is part of the environment record, so a result that was
measured with a fault is never mistaken for one without. A fault's function has the signature of its operation.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass

VARIABLE = "ATTNWATCH_FAULTS"


@dataclass(frozen=True)
class Fault:
    """``target`` ("module:function") replaces ``operation`` of ``backend``; ``trigger`` is where it shows."""

    name: str
    backend: str
    operation: str
    target: str
    trigger: str
    summary: str


FAULTS: dict[str, Fault] = {
    f.name: f
    for f in (
        Fault(
            "decode_boundary_slow", "segmented", "attention", "kernels.faults.decode_boundary:slow",
            "q_len == 1 and kv_len % 128 != 0",
            "a decode step over a length that is no multiple of 128 walks the cache block by block",
        ),
        Fault(
            "decode_boundary_wrong", "segmented", "attention", "kernels.faults.decode_boundary:wrong",
            "q_len == 1 and kv_len % 128 != 0",
            "a decode step leaves the keys after the last whole block of 128 out of the softmax normaliser",
        ),
        Fault(
            "kv_whole_capacity", "kv_trimmed", "kv_cache", "kernels.faults.latency_incident:whole_capacity",
            "kv_len < capacity",
            "a decode step walks the whole capacity of the cache instead of the valid keys",
        ),
        Fault(
            "layer_norm_narrow", "layer_norm_fp32", "layer_norm", "kernels.faults.latency_incident:narrow_layer_norm",
            "dtype == 'float16' and hidden_size * variance > 65504",
            "layer norm sums squares in float16, which ends at 65504",
        ),
        Fault(
            "layer_norm_narrow_eps", "layer_norm_fp32", "layer_norm",
            "kernels.faults.latency_incident:narrow_eps_layer_norm",
            "variance == 0 and eps < 3e-8",
            "layer norm adds eps in float16, where 1e-8 is 0",
        ),
        Fault(
            "softmax_stale_max", "softmax_running_max", "softmax", "kernels.faults.latency_incident:stale_softmax",
            "columns > block and spread >= 8",
            "exponents against the first block's maximum leave float16 beyond 11.09",
        ),
        Fault(
            "gemm_unaligned_slow", "gemm_native", "gemm", "kernels.faults.latency_incident:unaligned_gemm",
            "lda % 32 != 0",
            "a product whose left rows are not a multiple of 32 elements apart takes a few elements at a time",
        ),
        Fault(
            "prefill_sawtooth", "segmented", "attention", "kernels.faults.latency_incident:prefill_sawtooth",
            "q_len % 128 == 1 and head_dim == 128",
            "one query past a whole tile of 128 cuts all tiles down to 4",
        ),
        Fault(
            "paged_small_pages", "paged", "paged_attention", "kernels.faults.latency_incident:small_pages",
            "page_size < 64",
            "pages below 64 keys are laid out anew before every step",
        ),
        Fault(
            "gqa_gradients_summed", "gradients_gloo", "kv_gradients", "kernels.faults.batch_memory:gradients_summed",
            "ranks > 1 and heads_kv < heads_q",
            "gradients of shared key and value heads are added up over ranks instead of averaged",
        ),
        Fault(
            "mask_per_step", "mask_pooled", "token_mask", "kernels.faults.batch_memory:mask_per_step",
            "hidden and steps > 1",
            "a mask that hides tokens is made by operators in each step",
        ),
        Fault(
            "register_pressure", "row_softmax", "compile", "kernels.faults.register_pressure:launches",
            "columns > 512",
            "one warp holds a whole row in registers, however wide the row is; seen in the compiled code",
        ),
        Fault(
            "pruning_zeroes", "entropy_pruning", "kv_pruning", "kernels.faults.batch_memory:zeroed_keys",
            "keep < 1",
            "pruned keys are zeroed and stay in the cache and in the softmax",
        ),
        Fault(
            "step_quadratic", "step_segmented", "model_step", "kernels.faults.memory_incident:quadratic_prefill",
            "phase == 'prefill'",
            "a prefill falls back, in silence, to keeping all scores of the batch",
        ),
        Fault(
            "step_over_limit", "step_segmented", "model_step", "kernels.faults.memory_incident:over_limit_prefill",
            "phase == 'prefill' and batch * q_len * kv_len >= 1048576",
            "the same fallback from a million scores a head on, which does not fit into a small device",
        ),
        Fault(
            "switch_copies_cache", "segmented", "attention", "kernels.faults.memory_incident:switched_attention",
            "env == 'FLASH_ATTN_DISABLE_TMA=1'",
            "the path that a switch chooses copies keys and values before every call",
        ),
        Fault(
            "rope_to_longest", "rope_per_length", "rope", "kernels.faults.memory_incident:rope_to_longest",
            "shortest < q_len",
            "in a mixed batch angles are computed anew for every sequence, up to the longest",
        ),
        Fault(
            "server_capacity", "server_trimmed", "serving", "kernels.faults.servers:serve",
            "shortest < capacity",
            "a server walks the whole capacity of each slot for every token",
        ),
        Fault(
            "server_narrow", "server_trimmed", "serving", "kernels.faults.servers:serve",
            "heads_q * head_dim * variance > 65504",
            "a server's layer norm sums squares in float16, which ends at 65504",
        ),
        Fault(
            "server_boundary", "server_trimmed", "serving", "kernels.faults.servers:serve",
            "(new_tokens > 1 or shortest % 128 != 0 or longest % 128 != 0)",
            "a server's tokens past the last whole block of 128 keys walk block by block",
        ),
        Fault(
            "compiled_each_size", "compiled_auto", "compiled_batches", "kernels.faults.servers:each_size",
            "distinct > 2",
            "every batch size is compiled by itself instead of becoming a variable of one graph",
        ),
        Fault(
            "pool_side_by_side", "pool_paged", "block_pool", "kernels.faults.servers:long_side_by_side",
            "longest / page_size > 16",
            "requests of more than 16 blocks want them side by side in a paged pool",
        ),
    )
}  # fmt: skip


class UnknownFault(ValueError):
    """``ATTNWATCH_FAULTS`` names no fault."""


def active(environment: Mapping[str, str] | None = None) -> list[Fault]:
    """The faults that the environment switches on. Raises :class:`UnknownFault` with close matches."""
    named = (environment if environment is not None else os.environ).get(VARIABLE, "")
    found = []
    for name in filter(None, (part.strip() for part in named.split(","))):
        if name not in FAULTS:
            close = difflib.get_close_matches(name, FAULTS, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(FAULTS)}"
            raise UnknownFault(f"{VARIABLE}: no fault {name!r}{hint}")
        found.append(FAULTS[name])
    return found


def target(backend: str, operation: str, sound: str) -> str:
    """``sound``, or what an active fault puts in its place."""
    if not os.environ.get(VARIABLE):
        return sound
    return next((f.target for f in active() if (f.backend, f.operation) == (backend, operation)), sound)
