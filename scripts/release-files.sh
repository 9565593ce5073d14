#!/bin/sh
# Gathers what a release publishes in one directory, with SHA256SUMS over all of it, and verifies them.
#
#   scripts/release-files.sh DIRECTORY BUILT...
#
# DIRECTORY   where they go; it is made anew
# BUILT       what scripts/packages.sh, scripts/tarball.sh, scripts/rpm.sh, scripts/repository.sh and make sbom have
#             made: of each the directory, or one above it
#
# A repository goes in as repository.tar.gz, without the files that only reprepro needs. SIGN_WITH=KEY, an id or an
# address of gpg's, signs the checksums (SHA256SUMS.asc).
set -eu

die() { echo "release-files: $*" >&2; exit 1; }

[ $# -ge 2 ] || die "use: $0 DIRECTORY BUILT..."
out=$1
shift
rm -rf "$out"
mkdir -p "$out"
for built; do
    [ -d "$built" ] || die "$built is no directory: build it first (make packages rpm sbom repository)"
    # A repository's own copies of the packages are in it.
    find "$built" -name pool -prune -o -type f \( -name '*.deb' -o -name '*.rpm' -o -name '*.cdx.json' -o -name 'howdah-linux-*.tar.gz' \) -print \
        | while read -r file; do
            # GitHub renames what has a ~ in its name, and the checksums would not find it.
            name=$out/$(basename "$file" | tr '~' .)
            # The SBOM of each release is the same; another package of the same name would get lost.
            [ ! -e "$name" ] || cmp -s "$file" "$name" || die "two files are called ${file##*/}, and differ: $file"
            cp "$file" "$name"
        done
    for conf in $(find "$built" -path '*/conf/distributions'); do
        repository=${conf%/conf/distributions}
        tar -C "$repository/.." --exclude="${repository##*/}/conf" --exclude="${repository##*/}/db" \
            -czf "$out/repository.tar.gz" "${repository##*/}"
    done
done
cd "$out"
[ -n "$(ls)" ] || die "there is nothing to publish in: $*"
sha256sum -- * >SHA256SUMS
sha256sum --check --strict --quiet SHA256SUMS
[ -z "${SIGN_WITH-}" ] || gpg --batch --yes --local-user "$SIGN_WITH" --armor --detach-sign SHA256SUMS
ls -l
