#!/bin/sh
# Builds the packages howdah and howdah-bench for the Debian release that the script runs on, and writes them to
# target/packages, with their debug symbols in separate packages. Then it runs lintian.
#
#   scripts/packages.sh [DIRECTORY]     write the packages and SHA256SUMS to DIRECTORY
#
# The package contains the library for this release's PHP. PHP_LIBRARIES=DIRECTORY adds the libraries in DIRECTORY, which
# scripts/php-library.sh has built for other PHPs, so that the payload fits images with these PHPs.
#
# `scripts/arm64.sh scripts/packages.sh` builds the packages for 64-bit ARM.
#
# For tests, PROFILE=dev uses the programs of `make test`, and REVISION=2 gives the same packages a higher version.
# Needs the packages of `scripts/setup-debian.sh packages`, and a Rust toolchain.
set -eu
cd "$(dirname "$0")/.."

source=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "${1:-$target/packages}")
[ -z "${PHP_LIBRARIES-}" ] || { PHP_LIBRARIES=$(realpath "$PHP_LIBRARIES") && export PHP_LIBRARIES; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)${REVISION:++$REVISION}
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
series=$(scripts/setup-debian.sh --list build | sed -n 's/^php\(.*\)-dev$/\1/p')
changed=$(git log -1 --format=%cD)
work=$target/packages-work
# This path is the same for each version, because it is one of the flags with which C code is compiled.
tree=$work/howdah

# Copies the files that git knows, with uncommitted changes, so that the build writes nothing into the checkout.
rm -rf "$work"
mkdir -p "$tree" "$out"
git ls-files -z | xargs -0 cp --parents --preserve=timestamps,mode -t "$tree"
cp -r packaging/debian "$tree/debian"
cd "$tree"
sed "s/@SERIES@/$series/g" debian/control.in >debian/control
rm debian/*.in
for file in service socket logrotate tmpfiles; do
    cp "packaging/howdah.$file" "debian/howdah.$file"
done
cp packaging/howdah-https.socket debian/howdah.howdah-https.socket
# Each Debian release has its own PHP, and therefore its own packages.
cat >debian/changelog <<EOF
howdah ($version~$release) $release; urgency=medium

  * See /usr/share/doc/howdah/CHANGELOG.md.gz.

 -- The Howdah engineers <howdah@example.org>  $changed
EOF

[ "${PROFILE:-release}" = release ] || export DEB_BUILD_OPTIONS=noautodbgsym
architecture=
case ${CARGO_BUILD_TARGET-} in aarch64-*) architecture=arm64 ;; esac
CARGO_TARGET_DIR=$target SOURCE=$source dpkg-buildpackage ${architecture:+"--host-arch=$architecture"} --build=binary --no-sign --no-check-builddeps
rm -f "$out"/*.deb
mv "$work"/*.deb "$out"
(cd "$out" && sha256sum ./*.deb >SHA256SUMS)
lintian --pedantic --fail-on error,warning "$out"/howdah*.deb
ls -l "$out"
