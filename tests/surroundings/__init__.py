"""What stands around a server: other machines, a camera, a registry, a cloud."""
