"""A network that tells sounds apart, trained in seconds on sounds that are drawn up here."""
