#!/bin/sh
# The greeting of NVIDIA's images, before any command in them.
printf '\n=============================\n== Rehearsal of NVIDIA NGC ==\n=============================\n\n'
exec "$@"
