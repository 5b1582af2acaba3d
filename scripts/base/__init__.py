"""Used by every other layer: errors, files, the console, locks, ports."""
