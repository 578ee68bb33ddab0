"""Writes tests/golden/norm.inc: batch normalisation and its gradients as PyTorch computes them."""

import pathlib

import torch

torch.manual_seed(0)
lines = [f"// Made by tests/golden/norm.py with PyTorch {torch.__version__.split('+')[0]}."]


def emit(name, tensor):
    values = ", ".join(repr(value) for value in tensor.detach().flatten().tolist())
    lines.append(f"const std::vector<double> {name} = {{{values}}};")


def draw(*shape):
    return torch.round(torch.randn(*shape, dtype=torch.float64) * 8) / 8


x = draw(3, 2, 2, 2).requires_grad_()
emit("kInput", x)
grads = [draw(3, 2, 2, 2), draw(3, 2, 2, 2)]
emit("kFirstGrad", grads[0])
emit("kSecondGrad", grads[1])
for name, momentum in (("Average", 0.25), ("Cumulative", None)):
    norm = torch.nn.BatchNorm2d(2, eps=1e-3, momentum=momentum, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.5, -0.5]))
        norm.bias.copy_(torch.tensor([0.25, 2.0]))
    for step, scale in enumerate((1.0, 2.0)):  # two batches of training, then one of evaluation
        y = norm(x * scale)
    emit(f"k{name}Mean", norm.running_mean)
    emit(f"k{name}Var", norm.running_var)
    if name == "Average":
        x.grad = None
        y.backward(grads[0])
        for what, value in (("Y", y), ("XGrad", x.grad), ("WeightGrad", norm.weight.grad),
                            ("BiasGrad", norm.bias.grad)):
            emit(f"kTrain{what}", value)
        norm.eval()
        norm.zero_grad()
        x.grad = None
        y = norm(x)
        y.backward(grads[1])
        for what, value in (("Y", y), ("XGrad", x.grad), ("WeightGrad", norm.weight.grad),
                            ("BiasGrad", norm.bias.grad)):
            emit(f"kEval{what}", value)

text = "\n".join(lines) + "\n"
pathlib.Path(__file__).with_suffix(".inc").write_text(text, encoding="utf-8")
