#!/bin/sh
# Creates the folders of build/, the admin key, and a certificate if other machines can reach the
# server. They belong to the owner of this checkout, or to user 65532 if that is root, since neither
# steps nor server run as root. The server, also user 65532, reads the key through its group, and so a lock that commands hold.
set -eu
nobody=65532
key=build/key/admin.key certificate=build/tls/key.pem hands=build/key/hands-off
user=$(stat -c %u docker) group=$(stat -c %g docker)
# To an engine with userns-remap, or another user's rootless one, the owner is nobody: what users of containers make here would not
# be the owner's.
[ "$user" != 65534 ] || {
    echo "error: Docker gives containers other users here (userns-remap, or a rootless engine of another user), who cannot own build/;" \
        "serve without containers: make up FLAVOUR=local" >&2
    exit 1
}
# To a rootless engine the owner is root, who may do no more here than on the machine: that is one line of this.
rootless=$(awk 'NR == 1 && $3 == 1' /proc/self/uid_map)
[ "$user" != 0 ] || [ -n "$rootless" ] || user=$nobody group=$nobody

# Of a clone made with umask 077: the other steps begin as a root that may read no other user's files. make sees to it.
# What its Python keeps in __pycache__ while it does so is not needed.
set -- docker extensions kinds model_repository requirements scripts serving
hidden=$(find "$@" -name __pycache__ -prune -o ! -type l ! -perm -004 -print -quit)
[ -z "$hidden" ] || {
    echo "error: containers cannot read $hidden, as its owner alone may; chmod -R go+rX $*" >&2
    exit 1
}

mkdir -p build/cache build/key build/live build/tls build/versions
chmod a+rx build/key build/tls  # make makes them, too, under its user's umask
[ -e "$hands" ] || (umask 077 && : > "$hands")
if [ ! -e "$key" ]; then
    (umask 077 && od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' > "$key.tmp")
    mv "$key.tmp" "$key"
    echo "- created the admin key $key"
fi
refused=
TLS_FOLDER=build/tls API_KEYS=build/key/api.keys python3 -m bundle_door.access.certificate || refused=1
# Where the first step writes the recipe of the network that FROM names.
[ -z "${FROM:-}" ] || chown "$user:$group" own
find build ! -uid "$user" -exec chown --no-dereference "$user:$group" {} +
for secret in "$key" "$certificate" "$hands"; do
    [ ! -e "$secret" ] || { chown "$user:$nobody" "$secret" && chmod 640 "$secret"; }
done
[ -z "$refused" ]
