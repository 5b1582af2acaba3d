from scripts.settings.setting import Part, path_or

segmentation = path_or(
    ("default", "random"),
    """The weights of `make segment`, an lraspp_mobilenet_v3_large: torchvision's, random, or a
    file, fine-tuned or not, with the names of its classes in a .txt beside it.""",
    Part.EXTRA,
)
