#!/bin/sh
# Installs what the test of the Helm chart needs and Debian has not, in these versions, to
# $HOWDAH_TOOLS (by default ~/.cache/howdah): helm, built by Go, and kubernetes-validate, by pip. Does nothing
# when they are there. Go of 1.21 or later fetches the version that helm wants by itself.
set -eu

helm=v3.19.2
validate=1.37.0
tools=${HOWDAH_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/howdah}
# Written last: an installation that was interrupted begins again.
done=$tools/installed-helm-$helm-kubernetes-validate-$validate
[ -e "$done" ] && exit 0

PATH=$PATH:/usr/local/go/bin
command -v go >/dev/null 2>&1 || {
    echo 'setup-tools: go is not here: install Go 1.21 or later (https://go.dev/dl), or golang-go of Debian 13' >&2
    exit 1
}
echo "setup-tools: installing helm $helm and kubernetes-validate $validate to $tools (some minutes)"
mkdir -p "$tools/bin"
GOBIN=$tools/bin GOFLAGS=-trimpath go install "helm.sh/helm/v3/cmd/helm@$helm"
python3 -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet --disable-pip-version-check "kubernetes-validate==$validate"
touch "$done"
