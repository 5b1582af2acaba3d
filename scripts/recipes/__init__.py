"""What a pipeline is: its recipe, its models' configs, the shapes that it takes."""
