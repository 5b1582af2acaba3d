"""What users see: the page in a browser, and lines in a terminal."""
