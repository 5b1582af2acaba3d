"""What of the server stands before or behind no door: bundle_serving and bundle_keeper."""
