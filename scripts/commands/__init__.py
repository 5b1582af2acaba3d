"""One file for each make command. Nothing imports them."""
