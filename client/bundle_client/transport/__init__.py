"""How requests get to the server and answers back, and what can go wrong on the way."""
