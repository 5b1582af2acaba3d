"""How often what is said with certainty is true, in rounds that are drawn by chance."""
