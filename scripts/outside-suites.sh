#!/bin/bash
# Runs other projects' test suites against Howdah, from checkouts, and writes tests/outside-suites/results.md.
#
#   scripts/outside-suites.sh SUITES [SUITE...]
#
# SUITES is a directory with the checkouts, each under its repository's name. What is not there is left
# out, and its part of the page stays as its last run was (target/outside-suites). SUITE: h1spec,
# h2spec, testssl, Http11Probe, cache-tests, phpt-web, phpt-get, unit, frankenphp, hestiacp, vesta,
# ddev, lnmp, oneinstack, nginx-wiki, spinupwp, laradock, h5bp, nginx-samples, swoole.
#
#   h2spec       a directory with the program: `GOBIN=SUITES/h2spec go install
#                github.com/summerwind/h2spec/cmd/h2spec@latest`
#   testssl.sh   github.com/testssl/testssl.sh (testssl)
#   h1spec       github.com/uNetworking/h1spec
#   Http11Probe  github.com/MDA2AV/Http11Probe
#   cache-tests  github.com/http-tests/cache-tests, after `npm install`
#   php-src      PHP's sources, of the release that howdah-php is linked with (phpt-web, phpt-get)
#   unit         github.com/nginx/unit
#   frankenphp   github.com/php/frankenphp
#   hestiacp     github.com/hestiacp/hestiacp; needs nginx and openssl, as those up to Laradock's do
#   vesta        github.com/outroll/vesta
#   ddev         github.com/ddev/ddev
#   lnmp         github.com/licess/lnmp
#   oneinstack   github.com/oneinstack/oneinstack
#   nginx-wiki   github.com/nginxinc/nginx-wiki
#   wordpress-nginx       github.com/spinupwp/wordpress-nginx (spinupwp)
#   server-configs-nginx  github.com/h5bp/server-configs-nginx (h5bp)
#   laradock     github.com/laradock/laradock
#   (nginx-samples)  the repositories that tests/outside-suites/nginx_corpora.toml lists there, those
#                that are in SUITES
#   swoole-src   github.com/swoole/swoole-src, of the release whose API `howdah run` has: 5.1 (swoole)
#
# HOWDAH names the program, by default target/release/howdah. JOBS: how many servers at once (2). Needs
# python3 (3.11), node, php, php-fpm; pytest for unit, go for frankenphp. Exits with 1 if a case fails
# that tests/outside-suites/reasons.toml does not explain, or one passes that it says fails. Nothing of
# the suites is in this repository.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
suites=${1:?"usage: outside-suites.sh SUITES [SUITE...]"}
shift
export HOWDAH=${HOWDAH:-$here/target/release/howdah}
exec python3 -B "$here/tests/outside-suites/main.py" "$suites" "$@"
