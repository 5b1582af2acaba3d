"""What a server needs after its first day: backups, upgrades, packs."""
