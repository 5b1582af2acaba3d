"""What is asked of a server, and by whom."""
