#!/bin/sh
# Runs http-tests/cache-tests against `cache = "rfc"` and prints the score. This takes a minute.
#   scripts/cache-tests.sh SUITE [HOWDAH]
# SUITE is a checkout of https://github.com/http-tests/cache-tests after `npm install`. HOWDAH is the program, by
# default target/release/howdah. The script needs node and curl.
set -eu
suite=${1:?"usage: cache-tests.sh SUITE [HOWDAH]"}
here=$(cd "$(dirname "$0")/.." && pwd)
howdah=${2:-$here/target/release/howdah}
work=$(mktemp -d)
port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })')
mkdir "$work/state"
chmod 777 "$work" "$work/state"
cat > "$work/howdah.toml" <<CONFIG
listen = "127.0.0.1:$port"
control = "$work/control.sock"
[pool.www]
pm = "static"
max_children = 30
[pool.www.php_value]
default_mimetype = ""
[pool.www.env]
CACHE_TESTS_STATE = "$work/state"
[compression]
codings = "off"
[[site]]
root = "$here/tests/cache-tests"
front_controller = "/index.php"
try_files = []
cache = "rfc"
# The suite sends its configuration with PUT requests, which must not invalidate the pages of other tests.
cache_flush_on_write = "off"
CONFIG
"$howdah" serve --config "$work/howdah.toml" > "$work/log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null; rm -rf "$work"' EXIT
tries=0
until curl -s -o /dev/null "http://127.0.0.1:$port/state/none"; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { cat "$work/log"; exit 1; }
    sleep 0.2
done
(cd "$suite" && npm_config_base="http://127.0.0.1:$port" npm_config_id= npm_package_config_id= \
    node --no-warnings test-engine/cli.mjs) > "$work/result.json"
node "$here/tests/cache-tests/score.mjs" "$suite" "$work/result.json"
