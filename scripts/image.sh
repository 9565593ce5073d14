#!/bin/sh
# Builds the images of packaging/image without a container engine, as an OCI layout: a root of this Debian release with
# the packages of `make packages`, and a payload that can be copied into other images. If neither the packages nor
# Debian's archive have changed, the images are the same, byte for byte.
#
#   scripts/image.sh [DIRECTORY]     write the layout to DIRECTORY; by default to target/image
#
# Needs the packages of `scripts/setup-debian.sh image`, and root or subordinate ids, which mmdebstrap can use instead.
# To load the image into Docker, run `skopeo copy oci:target/image/oci:server docker-daemon:howdah:latest`.
set -eu
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "${1:-$target/image}")
packages=${PACKAGES:-$target/packages}
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
here=$PWD/packaging/image
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

set -- "$packages"/howdah_*.deb
[ -e "$1" ] || { echo "image: there are no packages in $packages; to build them, run: make packages" >&2; exit 1; }
begun=$(date +%s)
rm -rf "$out"
mkdir -p "$out"

mmdebstrap --quiet --variant=minbase \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='mkdir -p "$1/tmp/image" "$1/tmp/packages"' \
    --customize-hook="cp '$here/install.sh' '$here/howdah.toml' '$here/php.ini' \"\$1/tmp/image\"" \
    --customize-hook="cp '$packages'/howdah_*.deb \"\$1/tmp/packages\"" \
    --customize-hook='chroot "$1" sh /tmp/image/install.sh /tmp/packages' \
    --customize-hook='rm -rf "$1/tmp/image" "$1/tmp/packages"' \
    "$release" "$out/server.tar"

sh "$here/payload.sh" "$packages" "$out/payload"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    -C "$out/payload" -cf "$out/payload.tar" .
rm -rf "$out/payload"

python3 scripts/oci.py "$out/oci" server "$out/server.tar" payload "$out/payload.tar"
rm "$out"/*.tar
du -sh "$out/oci" | sed "s/\$/: made in $(($(date +%s) - begun)) s/"
