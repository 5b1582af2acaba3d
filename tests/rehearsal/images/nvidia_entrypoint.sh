#!/bin/sh
# As NVIDIA's images greet whoever runs anything in them.
printf '\n=============================\n== Rehearsal of NVIDIA NGC ==\n=============================\n\n'
exec "$@"
