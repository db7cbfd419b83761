"""A small transformer (embedding, layer norm, attention, MLP) to try the tracers on.

Each function takes nothing, runs the model on seeded tokens and returns logits (batch, length, vocabulary).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

VOCABULARY, WIDTH, HEADS, LENGTH = 64, 32, 4, 12


class Attention(nn.Module):
    """Causal self-attention written out, so that every step of the softmax is an operator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, WIDTH) to the same."""
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, -torch.inf), -1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and MLP, each behind a layer norm and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, WIDTH) to the same."""
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Two blocks between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, S) int64 to (B, S, VOCABULARY)."""
        return self.head(self.norm(self.blocks(self.embedding(tokens))))  # type: ignore[no-any-return]


def model() -> Transformer:
    """The model with seeded weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Transformer()


def tokens() -> Tensor:
    """(2, LENGTH) seeded tokens."""
    return torch.randint(VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(1))


def healthy() -> Tensor:
    """float32: finite from end to end, though the mask holds -inf."""
    return model()(tokens())  # type: ignore[no-any-return]


def overflowing() -> Tensor:
    """float16 with queries and keys of the second block 300 times too large: scores leave the range at 65504."""
    made = model().half()
    with torch.no_grad():
        made.blocks[1].attention.qkv.weight.mul_(300)  # type: ignore[union-attr, operator]
    return made(tokens())  # type: ignore[no-any-return]


def autocast() -> Tensor:
    """float32 weights under autocast to bfloat16."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model()(tokens())  # type: ignore[no-any-return]


def square_root_at_zero() -> Tensor:
    """Finite forward; the gradient of a square root at 0 is infinite, and times 0 no number."""
    return torch.sqrt(model()(tokens()) * 0.0)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _moved_model() -> Transformer:
    """Outside all graphs, so that moving the bias is no node of them."""
    made = model()
    with torch.no_grad():
        made.blocks[0].attention.out.bias.add_(0.1)  # type: ignore[union-attr, operator]
    return made


def moved() -> Tensor:
    """:func:`healthy` with one bias of the first block moved by 0.1, for comparing snapshots."""
    return _moved_model()(tokens())  # type: ignore[no-any-return]
