#!/bin/sh
# Runs a command as root in a copy of this machine's files that is gone afterwards, without a network but loopback, with an
# environment of its own: what it installs, and what it starts, is left nowhere.
#
#     tests/install/clean_root.sh COMMAND ARGUMENT...
set -eu
if [ "${1-}" != --inside ]; then
  test "$(id -u)" = 0 || { echo "weir: make try-dist needs root, to mount a copy of / for itself: sudo make try-dist" >&2; exit 1; }
  exec unshare --mount --net --pid --fork --kill-child --uts "$0" --inside "$@"
fi
shift
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/changed /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/changed,workdir=/mnt/work /mnt/root
mount -t proc proc /mnt/root/proc
mount --rbind /dev /mnt/root/dev
mount -t tmpfs tmpfs /mnt/root/tmp
mount -t tmpfs tmpfs /mnt/root/run
# Where the project lies on a file system of its own, that is not part of the copy; nor is what lies in /tmp.
project=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "/mnt/root$project"
mount --bind "$project" "/mnt/root$project"
mkdir /mnt/root/tmp/home
exec chroot /mnt/root env -i HOME=/tmp/home PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  ${PYTHONPATH:+PYTHONPATH="$PYTHONPATH"} sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
