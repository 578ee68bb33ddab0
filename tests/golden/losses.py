"""Writes tests/golden/losses.inc: losses and the gradients of their first input by PyTorch, in float64."""

import pathlib

import torch
import torch.nn.functional as F

ROWS, COLS = 4, 3


def values(seed, scale=1.0):
    return torch.tensor(
        [scale * (((seed + 1) * (7 * i + 3)) % 23 - 11) / 8 for i in range(ROWS * COLS)], dtype=torch.float64
    ).reshape(ROWS, COLS)


labels = torch.tensor([2, 0, 1, 2])
weight = torch.tensor([0.5, 2.0, 1.25], dtype=torch.float64)
y = torch.tensor([1, -1, -1, 1])
target = torch.softmax(values(3), 1)
target[1] = torch.tensor([0.0, 0.25, 0.75])
CASES = {
    "ce_smooth": lambda x, r: F.cross_entropy(x, labels, reduction=r, label_smoothing=0.2),
    "ce_weight": lambda x, r: F.cross_entropy(x, labels, weight, reduction=r),
    "ce_ignore": lambda x, r: F.cross_entropy(x, labels, ignore_index=2, reduction=r),
    "ce_all": lambda x, r: F.cross_entropy(x, labels, weight, ignore_index=1, label_smoothing=0.1, reduction=r),
    "smooth_l1": lambda x, r: F.smooth_l1_loss(x, values(2), beta=0.75, reduction=r),
    "l1": lambda x, r: F.smooth_l1_loss(x, values(2), beta=0.0, reduction=r),
    "huber": lambda x, r: F.huber_loss(x, values(2), delta=0.75, reduction=r),
    "kl_div": lambda x, r: F.kl_div(torch.log_softmax(x, 1), target, reduction=r),
    "kl_div_log": lambda x, r: F.kl_div(x, values(3), log_target=True, reduction=r),
    "cosine": lambda x, r: F.cosine_embedding_loss(x, values(2), y, margin=0.1, reduction=r),
    "triplet": lambda x, r: F.triplet_margin_loss(x, values(2), values(3), reduction=r),
    "triplet_swap": lambda x, r: F.triplet_margin_loss(
        x, values(2), values(3), margin=2.0, p=3.0, swap=True, reduction=r),
}

lines = [f"// Made by tests/golden/losses.py with PyTorch {torch.__version__.split('+')[0]}."]


def numbers(tensor):
    return "{" + ", ".join(repr(v) for v in tensor.flatten().tolist()) + "}"


for name, loss_of in CASES.items():
    for reduction in ("mean", "sum", "none"):
        x = values(1).requires_grad_()
        loss = loss_of(x, reduction)
        (loss * torch.arange(1, loss.numel() + 1).reshape(loss.shape)).sum().backward()
        lines.append(f'{{"{name}", Reduction::{reduction}, {numbers(loss)}, {numbers(x.grad)}}},')
pathlib.Path(__file__).with_suffix(".inc").write_text("\n".join(lines) + "\n")
