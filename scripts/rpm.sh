#!/bin/sh
# Builds rpm packages from this tree, writes them to target/rpm and lists their contents.
#
#   scripts/rpm.sh [DIRECTORY]     write the packages to DIRECTORY
#
# For tests, PROFILE=dev uses the programs of `make test`. Needs rpmbuild (Debian's package rpm), a Rust toolchain, and
# everything else that a build needs.
set -eu
cd "$(dirname "$0")/.."

command -v rpmbuild >/dev/null || { echo 'rpm: rpmbuild is missing; to install it, run: apt install rpm' >&2; exit 1; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "${1:-$target/rpm}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
profile=${PROFILE:-release}
directory=$profile
[ "$profile" != dev ] || directory=debug

rm -rf "$target/rpm-work"
# On Debian, rpm does not know which packages are installed, so rpmbuild does not check the dependencies of the build.
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
