#!/bin/sh
# Builds rpm packages from this tree, to target/rpm, and lists what is in them.
#
#   scripts/rpm.sh [DIRECTORY]     write them there
#
# PROFILE=dev takes the programs of `make test`, for tests. Needs rpmbuild (Debian's package rpm), what a build needs, and a
# Rust toolchain.
set -eu
cd "$(dirname "$0")/.."

command -v rpmbuild >/dev/null || { echo 'rpm: rpmbuild is missing: apt install rpm' >&2; exit 1; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "${1:-$target/rpm}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
profile=${PROFILE:-release}
directory=$profile
[ "$profile" != dev ] || directory=debug

rm -rf "$target/rpm-work"
# Debian's rpm knows no packages: what a build needs is looked for by the build itself.
CARGO_TARGET_DIR=$target rpmbuild -bb --nodeps --quiet \
    --define "_topdir $target/rpm-work" --define "tree $PWD" --define "version_of_tree $version" \
    --define "profile $profile" --define "directory $directory" packaging/howdah.spec
mkdir -p "$out"
rm -f "$out"/*.rpm
find "$target/rpm-work/RPMS" -name '*.rpm' -exec mv -t "$out" {} +
(cd "$out" && sha256sum ./*.rpm >SHA256SUMS)
for package in "$out"/*.rpm; do
    echo "$package:"
    rpm -qpl "$package" | sed 's/^/  /'
done
