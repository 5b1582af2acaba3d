"""What commands, settings and stacks do."""
