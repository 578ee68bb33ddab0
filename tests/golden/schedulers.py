"""Writes tests/golden/schedulers.inc: learning rates before step 0 to 24 by PyTorch's schedulers."""

import pathlib
import warnings

import torch
from torch.optim import lr_scheduler as s

warnings.simplefilter("ignore")
STEPS = 25
METRICS = [5.0, 4.0, 4.1, 4.2, 4.3, 3.0, 3.0, 3.1, 3.2, 3.3, 3.0, 2.9999, 2.0, 2.5, 2.5, 2.5]
CASES = {
    "step": lambda o: s.StepLR(o, step_size=4, gamma=0.5),
    "multi_step": lambda o: s.MultiStepLR(o, milestones=[3, 7, 7, 12], gamma=0.3),
    "exponential": lambda o: s.ExponentialLR(o, gamma=0.9),
    "cosine": lambda o: s.CosineAnnealingLR(o, T_max=10, eta_min=0.01),
    "warm_restarts": lambda o: s.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.01),
    "one_cycle": lambda o: s.OneCycleLR(o, max_lr=0.8, total_steps=25, pct_start=0.3, cycle_momentum=False),
    "one_cycle_linear": lambda o: s.OneCycleLR(
        o, max_lr=0.8, total_steps=25, anneal_strategy="linear", three_phase=True, cycle_momentum=False),
    "linear": lambda o: s.LinearLR(o, start_factor=0.25, end_factor=0.75, total_iters=6),
    "lambda": lambda o: s.LambdaLR(o, lambda step: 1.0 / (1 + step)),
    "sequential": lambda o: s.SequentialLR(
        o, [s.LinearLR(o, start_factor=0.1, total_iters=5), s.CosineAnnealingLR(o, T_max=10), s.ExponentialLR(o, 0.5)],
        milestones=[5, 15]),
    "plateau": lambda o: s.ReduceLROnPlateau(o, factor=0.5, patience=2, cooldown=1, min_lr=0.02),
}

lines = [f"// Made by tests/golden/schedulers.py with PyTorch {torch.__version__.split('+')[0]}."]
for name, make in CASES.items():
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.4, 0.1)]
    optimizer = torch.optim.SGD(groups)
    scheduler = make(optimizer)
    rates = [[], []]
    for step in range(STEPS):
        for i in range(2):
            rates[i].append(optimizer.param_groups[i]["lr"])
        optimizer.step()
        if step + 1 == STEPS:
            break
        if name == "plateau":
            scheduler.step(METRICS[step % len(METRICS)])
        else:
            scheduler.step()
    for i in range(2):
        lines.append(f'{{"{name}", {i}, {{{", ".join(repr(r) for r in rates[i])}}}}},')
pathlib.Path(__file__).with_suffix(".inc").write_text("\n".join(lines) + "\n")
