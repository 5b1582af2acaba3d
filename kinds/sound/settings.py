from scripts.settings.setting import Part, path_or

sounds = path_or(
    ("drawn",),
    """The weights of `make classify MODEL=sounds`: drawn, a small network that comes with the
    project and knows eight made-up sounds; or a file of that network, trained further, with the
    names of its classes in a .txt beside it.""",
    Part.EXTRA,
)
