from scripts.settings.setting import Part, text_or_files

sentiment = text_or_files(
    "",
    """The classifier of `make sentiment`: a name on the Hugging Face hub, a folder, or minilm,
    a small one that needs no hub and is trained here in seconds. Empty: the one in
    kinds/text/sentiment.yaml.""",
    Part.EXTRA,
)
