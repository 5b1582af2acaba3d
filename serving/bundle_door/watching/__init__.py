"""What the door sees of requests, steps and answers, and what it tells of them."""
