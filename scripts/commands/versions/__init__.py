"""From one version to the next."""
