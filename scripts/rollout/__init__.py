"""From one version to another while the server answers, and back."""
