#!/bin/sh
# Creates howdah-linux-x86_64.tar.gz (or -aarch64, as the packages are) from the packages of `make packages`. The archive
# contains the program, its libraries and packaging/tarball/install.sh, for systems without a package of Howdah. From the
# same packages, the script creates the same file, byte for byte.
#
#   scripts/tarball.sh [DIRECTORY]     write the archive to DIRECTORY; by default to target/tarball
set -eu
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "${1:-$target/tarball}")
packages=${PACKAGES:-$target/packages}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
architecture=$(dpkg-deb -f "$packages"/howdah_*.deb Architecture)
case $architecture in
    amd64) name=howdah-linux-x86_64 ;;
    arm64) name=howdah-linux-aarch64 ;;
    *) name=howdah-linux-$architecture ;;
esac
work=$target/tarball-work

rm -rf "$work"
mkdir -p "$work/$name" "$out"
sh packaging/image/payload.sh "$packages" "$work/payload"
mv "$work/payload/usr/bin" "$work/payload/usr/lib" "$work/$name"
cp packaging/tarball/install.sh LICENSE README.md CHANGELOG.md "$work/$name"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -c "$name" \
    | gzip -n >"$out/$name.tar.gz"
rm -rf "$work"
ls -l "$out/$name.tar.gz"
