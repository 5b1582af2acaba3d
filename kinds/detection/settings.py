from scripts.settings.setting import Part, path_or

detection = path_or(
    ("default", "random"),
    """The weights of `make detect`, an ssdlite320_mobilenet_v3_large: torchvision's, random, or
    a file, fine-tuned or not, with the names of its classes in a .txt beside it.""",
    Part.EXTRA,
)
