from scripts.settings.setting import Part, path_or

cascade = path_or(
    ("default", "random"),
    "The weights of the small network of `make classify MODEL=cascade`; values as for WEIGHTS.",
    Part.EXTRA,
)
