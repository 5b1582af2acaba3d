"""Networks of the user's: taken in, made the main one, removed."""
