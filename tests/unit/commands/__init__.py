"""What commands and stacks do."""
