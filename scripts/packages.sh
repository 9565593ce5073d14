#!/bin/sh
# Builds the Debian packages for the release that it runs on: howdah and howdah-bench, with their debug symbols in packages of their own, to target/packages; then asks lintian.
#
#   scripts/packages.sh [DIRECTORY]     write them there, with SHA256SUMS
#
# PROFILE=dev takes the programs of `make test`, for tests; REVISION=2 makes a higher version of the same.
# Needs scripts/setup-debian.sh packages, and a Rust toolchain.
set -eu
cd "$(dirname "$0")/.."

source=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "${1:-$target/packages}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)${REVISION:++$REVISION}
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
series=$(scripts/setup-debian.sh --list build | sed -n 's/^php\(.*\)-dev$/\1/p')
changed=$(git log -1 --format=%cD)
work=$target/packages-work
# The same for each version, since C code is compiled with this path among its flags.
tree=$work/howdah

# What git knows, changes included: nothing of it is written in the checkout.
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
# A release of Debian has its own PHP, and so its own packages.
cat >debian/changelog <<EOF
howdah ($version~$release) $release; urgency=medium

  * See /usr/share/doc/howdah/CHANGELOG.md.gz.

 -- The Howdah engineers <howdah@example.org>  $changed
EOF

[ "${PROFILE:-release}" = release ] || export DEB_BUILD_OPTIONS=noautodbgsym
CARGO_TARGET_DIR=$target SOURCE=$source dpkg-buildpackage --build=binary --no-sign --no-check-builddeps
rm -f "$out"/*.deb
mv "$work"/*.deb "$out"
(cd "$out" && sha256sum ./*.deb >SHA256SUMS)
lintian --pedantic --fail-on error,warning "$out"/howdah*.deb
ls -l "$out"
