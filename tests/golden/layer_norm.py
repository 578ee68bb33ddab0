"""Writes tests/golden/layer_norm.inc: normalisations of rows and groups as PyTorch computes them."""

import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(0)
lines = [f"// Made by tests/golden/layer_norm.py with PyTorch {torch.__version__.split('+')[0]}."]


def draw(*shape):
    return (torch.round(torch.randn(*shape, dtype=torch.float64) * 4) / 4).requires_grad_()


def braces(tensor):
    return "{" + ", ".join(repr(value) for value in tensor.detach().flatten().tolist()) + "}"


def emit(name, x, weight, bias, y):
    grad = draw(*y.shape)
    y.backward(grad)
    tensors = [x, weight, bias, grad, y, x.grad, weight.grad]
    tensors += [] if bias.grad is None else [bias.grad]
    lines.append(f"const Golden {name} = {{" + ",\n ".join(map(braces, tensors)) + "};")


x, weight, bias = draw(2, 2, 3), draw(2, 3), draw(2, 3)
emit("kLayer", x, weight, bias, F.layer_norm(x, (2, 3), weight, bias, 1e-3))
x, weight, bias = draw(2, 4, 3), draw(4), draw(4)
emit("kGroup", x, weight, bias, F.group_norm(x, 2, weight, bias, 1e-3))
x, weight, bias = draw(3, 4), draw(4), draw(4)
emit("kRms", x, weight, bias, F.rms_norm(x, (4,), weight))

text = "\n".join(lines) + "\n"
pathlib.Path(__file__).with_suffix(".inc").write_text(text, encoding="utf-8")
