"""Writes tests/golden/optimizers.inc: three parameters after 1, 2 and 12 steps of PyTorch's optimisers."""

import pathlib

import torch

START = [0.5, -1.0, 2.0]
STEPS = (1, 2, 12)
SGD, Adam, AdamW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
RMSprop, Adagrad = torch.optim.RMSprop, torch.optim.Adagrad
CASES = {
    "sgd": (SGD, dict(lr=0.1, weight_decay=0.05)),
    "sgd_momentum": (SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.05)),
    "sgd_dampening": (SGD, dict(lr=0.1, momentum=0.8, dampening=0.3, maximize=True)),
    "sgd_nesterov": (SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
    "adam": (Adam, dict(lr=0.05, weight_decay=0.1)),
    "adam_amsgrad": (Adam, dict(lr=0.05, betas=(0.8, 0.9), amsgrad=True)),
    "adamw": (AdamW, dict(lr=0.05, weight_decay=0.1)),
    "adamw_amsgrad": (AdamW, dict(lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, amsgrad=True, maximize=True)),
    "rmsprop": (RMSprop, dict(lr=0.02, alpha=0.9, weight_decay=0.1)),
    "rmsprop_centered": (RMSprop, dict(lr=0.02, alpha=0.9, eps=1e-3, centered=True)),
    "rmsprop_momentum": (RMSprop, dict(lr=0.02, alpha=0.9, eps=1e-3, momentum=0.5, centered=True, maximize=True)),
    "adagrad": (Adagrad, dict(lr=0.3, weight_decay=0.1)),
    "adagrad_decay": (Adagrad, dict(lr=0.3, lr_decay=0.1, initial_accumulator_value=0.5, maximize=True)),
}


def gradient(step, dtype):
    return torch.tensor([((7 * step + 3 * i) % 11 - 5) / 4 for i in range(3)], dtype=dtype)


lines = [f"// Made by tests/golden/optimizers.py with PyTorch {torch.__version__.split('+')[0]}."]
for name, (make, options) in CASES.items():
    for dtype, word in ((torch.float32, "float32"), (torch.float64, "float64")):
        p = torch.tensor(START, dtype=dtype, requires_grad=True)
        optimizer = make([p], **options)
        values = []
        for step in range(max(STEPS)):
            p.grad = gradient(step, dtype)
            optimizer.step()
            if step + 1 in STEPS:
                values += p.tolist()
        lines.append(f'{{"{name}", DType::{word}, {{{", ".join(repr(v) for v in values)}}}}},')
pathlib.Path(__file__).with_suffix(".inc").write_text("\n".join(lines) + "\n")
