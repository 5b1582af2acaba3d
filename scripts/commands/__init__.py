"""One file per make command. Nothing imports them."""
