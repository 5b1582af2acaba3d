"""How right a model is on labelled data: reading it, and the figures. No server, no kind."""
