"""One module a kind of pipeline, named as the recipes' `kind`."""
