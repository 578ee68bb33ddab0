"""Writes tests/golden/promotion.inc: what PyTorch makes of two dtypes, by weight of each operand."""

import pathlib

import torch

DTYPES = {
    "boolean": torch.bool,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
NUMBERS = {"int64": 1, "float32": 1.5}


def tensor(dtype, axes):
    return torch.ones([2] * axes, dtype=dtype)


def row(a, a_weight, b, b_weight, result):
    return f"{{DType::{a}, Weight::{a_weight}, DType::{b}, Weight::{b_weight}, DType::{NAMES[result]}}},"


lines = [f"// Made by tests/golden/promotion.py with PyTorch {torch.__version__.split('+')[0]}."]
for a, a_dtype in DTYPES.items():
    for b, b_dtype in DTYPES.items():
        for a_weight, a_axes in (("tensor", 1), ("scalar_tensor", 0)):
            for b_weight, b_axes in (("tensor", 1), ("scalar_tensor", 0)):
                result = torch.result_type(tensor(a_dtype, a_axes), tensor(b_dtype, b_axes))
                lines.append(row(a, a_weight, b, b_weight, result))
    for b, number in NUMBERS.items():
        for a_weight, a_axes in (("tensor", 1), ("scalar_tensor", 0)):
            result = torch.result_type(tensor(a_dtype, a_axes), number)
            lines.append(row(a, a_weight, b, "number", result))
pathlib.Path(__file__).with_suffix(".inc").write_text("\n".join(lines) + "\n")
