"""The values of PRECISION. Stdlib only: the steps in containers read it too."""

PRECISIONS = ("auto", "fp32", "bf16", "int8")
