"""The server that is up: brought up, asked, told to load, put in order."""
