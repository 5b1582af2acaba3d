from scripts.settings.setting import Part, path_or

places = path_or(
    ("", "random"),
    """The weights of `make classify MODEL=places`: resnet50_places365.pth.tar, with
    categories_places365.txt beside it (both from places2.csail.mit.edu); or random.""",
    Part.EXTRA,
)
