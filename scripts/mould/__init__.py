"""Model folders made of a recipe: what a pipeline is, said once."""
