"""Writes tests/golden/pool.inc: pooling and its gradients as PyTorch computes them."""

import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(0)
MAX = [  # x, kernel, stride, padding, dilation, ceil_mode
    ((2, 2, 5, 6), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((1, 2, 7, 6), (3, 2), (2, 1), (1, 1), (1, 2), False),
    ((1, 1, 6, 7), (3, 3), (2, 2), (1, 0), (1, 1), True),
    ((1, 2, 5, 5), (3, 3), (1, 1), (1, 1), (1, 1), False),
]
MEAN = [  # x, kernel, stride, padding, ceil_mode, count_include_pad
    ((2, 2, 5, 6), (2, 3), (2, 3), (0, 0), False, True),
    ((1, 2, 6, 7), (3, 3), (2, 2), (1, 1), True, True),
    ((1, 1, 7, 5), (3, 2), (2, 2), (1, 1), True, False),
    ((1, 2, 4, 4), (3, 3), (1, 1), (1, 1), False, False),
]
ADAPTIVE = [((2, 2, 5, 6), (1, 1)), ((1, 2, 7, 5), (3, 4)), ((1, 1, 3, 4), (5, 4))]
lines = [f"// Made by tests/golden/pool.py with PyTorch {torch.__version__.split('+')[0]}."]


def draw(shape):
    return torch.round(torch.randn(*shape, dtype=torch.float64) * 4) / 4


def braces(values):
    return "{" + ", ".join(f"{value:.16g}" for value in values) + "}"


def flag(value):
    return "true" if value else "false"


def emit(head, x, y, indices=None):
    grad = draw(y.shape)
    y.backward(grad)
    fields = [head, braces(x.shape), braces(y.shape)]
    tensors = [x, y, grad, x.grad] + ([] if indices is None else [indices])
    fields += [braces(tensor.detach().flatten().tolist()) for tensor in tensors]
    lines.append("{" + ",\n ".join(fields) + "},")


lines.append("const std::vector<MaxCase> kMax = {")
for shape, kernel, stride, padding, dilation, ceil in MAX:
    x = draw(shape).requires_grad_()
    y, indices = F.max_pool2d(x, kernel, stride, padding, dilation, ceil, return_indices=True)
    emit(f"Size2d{braces(kernel)}, {{Size2d{braces(stride)}, {braces(padding)}, "
         f"{braces(dilation)}, {flag(ceil)}}}", x, y, indices)
lines.append("};\nconst std::vector<MeanCase> kMean = {")
for shape, kernel, stride, padding, ceil, count in MEAN:
    x = draw(shape).requires_grad_()
    y = F.avg_pool2d(x, kernel, stride, padding, ceil, count)
    emit(f"Size2d{braces(kernel)}, {{Size2d{braces(stride)}, {braces(padding)}, {flag(ceil)}, "
         f"{flag(count)}}}", x, y)
lines.append("};\nconst std::vector<AdaptiveCase> kAdaptive = {")
for shape, output in ADAPTIVE:
    x = draw(shape).requires_grad_()
    emit(f"Size2d{braces(output)}", x, F.adaptive_avg_pool2d(x, output))
lines.append("};")

text = "\n".join(lines) + "\n"
pathlib.Path(__file__).with_suffix(".inc").write_text(text, encoding="utf-8")
