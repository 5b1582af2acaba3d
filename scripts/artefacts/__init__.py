"""What steps leave behind and share: manifests, workspaces, pictures to check with."""
