#!/bin/sh
# Makes the folders of build/ and the admin key. They belong to the owner of this checkout; where
# that is root, to nobody, for neither steps nor server run as root. The server, which is nobody
# too, reads the key by its group.
set -eu
nobody=65532
key=build/key/admin.key
user=$(stat -c %u docker) group=$(stat -c %g docker)
[ "$user" != 0 ] || user=$nobody group=$nobody

mkdir -p build/cache build/key build/live build/versions
if [ ! -e "$key" ]; then
    (umask 077 && od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' > "$key.tmp")
    mv "$key.tmp" "$key"
    echo "- created the admin key $key"
fi
find build ! -uid "$user" -exec chown --no-dereference "$user:$group" {} +
chown "$user:$nobody" "$key"
chmod 640 "$key"
