"""One module per kind of pipeline, named like the recipes' `kind`."""
