"""What runs inside the server: the pipeline's steps as pure functions, and the glue to Triton."""
