"""What keeps a server up: under load, faults and other versions."""
