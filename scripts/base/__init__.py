"""What every other layer stands on: errors, files, the console, locks, ports."""
