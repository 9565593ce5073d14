#!/bin/bash
# Runs other projects' test suites against Howdah, from checkouts, and writes tests/outside-suites/results.md.
#
#   scripts/outside-suites.sh SUITES [SUITE...]
#
# SUITES is a directory that contains the checkouts, each with the name of its repository. If a checkout is missing, its
# suite is skipped, and the page keeps the results of the suite's last run (target/outside-suites). SUITE: h1spec,
# h2spec, testssl, Http11Probe, cache-tests, varnish-esi, phpt-web, phpt-get, unit, frankenphp, hestiacp, vesta,
# ddev, lnmp, oneinstack, nginx-wiki, spinupwp, laradock, h5bp, nginx-samples, swoole.
#
#   h2spec       a directory that contains the program: `GOBIN=SUITES/h2spec go install
#                github.com/summerwind/h2spec/cmd/h2spec@latest`
#   testssl.sh   github.com/testssl/testssl.sh (testssl)
#   h1spec       github.com/uNetworking/h1spec
#   Http11Probe  github.com/MDA2AV/Http11Probe
#   cache-tests  github.com/http-tests/cache-tests, after `npm install`
#   varnish-cache  github.com/varnishcache/varnish-cache (varnish-esi)
#   php-src      PHP's sources, of the release that howdah-php was built for (phpt-web, phpt-get)
#   unit         github.com/nginx/unit
#   frankenphp   github.com/php/frankenphp
#   hestiacp     github.com/hestiacp/hestiacp; needs nginx and openssl, like the other suites up to laradock
#   vesta        github.com/outroll/vesta
#   ddev         github.com/ddev/ddev
#   lnmp         github.com/licess/lnmp
#   oneinstack   github.com/oneinstack/oneinstack
#   nginx-wiki   github.com/nginxinc/nginx-wiki
#   wordpress-nginx       github.com/spinupwp/wordpress-nginx (spinupwp)
#   server-configs-nginx  github.com/h5bp/server-configs-nginx (h5bp)
#   laradock     github.com/laradock/laradock
#   (nginx-samples)  those of the repositories that tests/outside-suites/nginx_corpora.toml lists that are
#                in SUITES
#   swoole-src   github.com/swoole/swoole-src, of release 5.1, whose API `howdah run` implements (swoole)
#
# The variable HOWDAH names the program, by default target/release/howdah. JOBS sets how many servers run at the same
# time, by default 2. The script needs python3 (3.11), node, php and php-fpm, and also pytest for unit and go for
# frankenphp. It exits with 1 if a case fails although tests/outside-suites/reasons.toml does not explain this, or if a
# case passes although that file says that it fails. This repository contains no part of the suites.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
suites=${1:?"usage: outside-suites.sh SUITES [SUITE...]"}
shift
export HOWDAH=${HOWDAH:-$here/target/release/howdah}
exec python3 -B "$here/tests/outside-suites/main.py" "$suites" "$@"
