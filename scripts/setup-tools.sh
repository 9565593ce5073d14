#!/bin/sh
# Installs tools that the tests need and that Debian does not have, in the versions below, to $HOWDAH_TOOLS (by default
# ~/.cache/howdah): helm and pebble with Go, kubernetes-validate with pip, and mdBook with scripts/docs.py. Debian's pebble
# does not support ARI (RFC 9773). Tools that are already installed are skipped. Go 1.21 or later fetches the version of
# Go that helm needs by itself.
set -eu

helm=v3.19.2
pebble=v2.10.3
validate=1.37.0
tools=${HOWDAH_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/howdah}
"${0%/*}/docs.py" --install
# This file is written last, so that an interrupted installation begins again.
done=$tools/installed-helm-$helm-pebble-$pebble-kubernetes-validate-$validate
[ -e "$done" ] && exit 0

PATH=$PATH:/usr/local/go/bin
command -v go >/dev/null 2>&1 || {
    echo 'setup-tools: go is missing: install Go 1.21 or later (https://go.dev/dl), or the package golang-go of Debian 13' >&2
    exit 1
}
echo "setup-tools: installing helm $helm, pebble $pebble and kubernetes-validate $validate to $tools (some minutes)"
mkdir -p "$tools/bin"
# Without this, Go would keep 1.2 GB of sources and compiled packages for later builds, which never happen.
downloads=$(mktemp -d)
trap 'rm -rf "$downloads"' EXIT
export GOBIN="$tools/bin" GOCACHE="$downloads/cache" GOMODCACHE="$downloads/modules" GOFLAGS='-trimpath -modcacherw'
go install "helm.sh/helm/v3/cmd/helm@$helm"
go install "github.com/letsencrypt/pebble/v2/cmd/pebble@$pebble"
python3 -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet --disable-pip-version-check "kubernetes-validate==$validate"
touch "$done"
