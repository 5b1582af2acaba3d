"""Code that runs in the server: the pipelines' steps as pure functions, and the glue to Triton."""
