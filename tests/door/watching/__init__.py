"""What a door tells of its requests, and keeps of them."""
