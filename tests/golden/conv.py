"""Writes tests/golden/conv.inc: convolutions and their gradients as PyTorch computes them."""

import pathlib

import torch

torch.manual_seed(0)
CASES = [  # x, weight, stride, padding, dilation, groups
    ((2, 2, 5, 4), (3, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 4, 6, 7), (6, 2, 3, 2), (2, 1), (0, 2), (1, 3), 2),
    ((2, 3, 7, 5), (3, 1, 3, 3), (2, 2), (1, 1), (1, 1), 3),
    ((1, 2, 5, 6), (4, 1, 2, 3), (1, 3), (2, 1), (2, 1), 2),
    ((2, 2, 3, 4), (2, 2, 2, 3), (1, 1), "same", (1, 2), 1),
    ((1, 2, 4, 4), (3, 2, 4, 2), (1, 1), "same", (1, 1), 1),
    ((2, 3, 3, 3), (2, 3, 1, 1), (2, 2), (0, 0), (1, 1), 1),
]


def draw(shape):
    return torch.round(torch.randn(*shape, dtype=torch.float64) * 4) / 4


def braces(values):
    return "{" + ", ".join(f"{value:.16g}" for value in values) + "}"


lines = [f"// Made by tests/golden/conv.py with PyTorch {torch.__version__.split('+')[0]}."]
for x_shape, w_shape, stride, padding, dilation, groups in CASES:
    x = draw(x_shape).requires_grad_()
    weight = draw(w_shape).requires_grad_()
    bias = draw(w_shape[:1]).requires_grad_()
    y = torch.nn.functional.conv2d(x, weight, bias, stride, padding, dilation, groups)
    grad = draw(y.shape)
    y.backward(grad)
    pad = "Padding2d::same()" if padding == "same" else f"Padding2d{braces(padding)}"
    tensors = [x, weight, bias, grad, y, x.grad, weight.grad, bias.grad]
    fields = [braces(x_shape), braces(w_shape), braces(y.shape),
              "{" + f"{braces(stride)}, {pad}, {braces(dilation)}, {groups}" + "}"]
    fields += [braces(tensor.detach().flatten().tolist()) for tensor in tensors]
    lines.append("{" + ",\n ".join(fields) + "},")

text = "\n".join(lines) + "\n"
pathlib.Path(__file__).with_suffix(".inc").write_text(text, encoding="utf-8")
