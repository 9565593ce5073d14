#!/bin/sh
# Copies the files that a release publishes into one directory, writes their checksums to SHA256SUMS and verifies them.
#
#   scripts/release-files.sh DIRECTORY BUILT...
#
# DIRECTORY   the directory for the files; an existing one is deleted first
# BUILT       the directories that scripts/packages.sh, scripts/tarball.sh, scripts/rpm.sh, scripts/repository.sh and
#             make sbom have written, or directories that contain them
#
# An apt repository becomes repository.tar.gz, without the files that only reprepro needs. SIGN_WITH=KEY signs the
# checksums (SHA256SUMS.asc); KEY is the id or the e-mail address of a key of gpg.
set -eu

die() { echo "release-files: $*" >&2; exit 1; }

[ $# -ge 2 ] || die "usage: $0 DIRECTORY BUILT..."
out=$1
shift
rm -rf "$out"
mkdir -p "$out"
for built; do
    [ -d "$built" ] || die "$built is not a directory; to build the files, run: make packages rpm sbom repository"
    # Skips the copies of the packages in the pool of a repository.
    find "$built" -name pool -prune -o -type f \( -name '*.deb' -o -name '*.rpm' -o -name '*.cdx.json' -o -name 'howdah-linux-*.tar.gz' \) -print \
        | while read -r file; do
            # GitHub renames files with a ~ in their names, so the checksums would name files that do not exist.
            name=$out/$(basename "$file" | tr '~' .)
            # The SBOM of each Debian release is the same. Another file of the same name would be lost.
            [ ! -e "$name" ] || cmp -s "$file" "$name" || die "$file and another file have the same name, but their contents differ"
            cp "$file" "$name"
        done
    for conf in $(find "$built" -path '*/conf/distributions'); do
        repository=${conf%/conf/distributions}
        tar -C "$repository/.." --exclude="${repository##*/}/conf" --exclude="${repository##*/}/db" \
            -czf "$out/repository.tar.gz" "${repository##*/}"
    done
done
cd "$out"
[ -n "$(ls)" ] || die "there are no files to publish in these directories: $*"
sha256sum -- * >SHA256SUMS
sha256sum --check --strict --quiet SHA256SUMS
[ -z "${SIGN_WITH-}" ] || gpg --batch --yes --local-user "$SIGN_WITH" --armor --detach-sign SHA256SUMS
ls -l
