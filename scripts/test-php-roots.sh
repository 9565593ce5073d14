#!/bin/sh
# Builds howdah-php for each PHP of scripts/php-roots.sh and runs its tests with that PHP's programs.
#
#   scripts/test-php-roots.sh [NAME...]          use these PHPs, and set up those that are missing; by default all
#   PROGRAM=php-fpm scripts/test-php-roots.sh    use php-fpm or php; by default php-cgi, which has every extension
#   TESTS="worker opcache" ...                   run only these test programs
#
# Needs root, and what `scripts/setup-debian.sh build` installs. A distribution's PHP runs in its root, in a set of
# mounts that ends with the test program.
set -eu
cd "$(dirname "$0")/.."

program=${PROGRAM:-php-cgi}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
roots=$target/php-roots
results=$target/php-roots-results
failed=

# The test programs are run in their crate, as cargo does: run_test NAME TEST-PROGRAM
run_test() {
    root=$roots/$1
    # This test program only reads the library and starts no PHP. It needs objdump, which the roots do not have.
    case $2 in */c_library-*) set -- "$1-library" "$2" ;; esac
    case $1 in
        *-library) env -C crates/howdah-php "$2" ;;
        *-zts)
            directory=$root/opt/php/bin
            [ "$program" != php-fpm ] || directory=$root/opt/php/sbin
            env -C crates/howdah-php HOWDAH_PHP="$directory/$program" "$2"
            ;;
        [0-9]*)
            directory=/usr/bin
            [ "$program" != php-fpm ] || directory=/usr/sbin
            scripts/in-root.sh "$1" env -C "$PWD/crates/howdah-php" HOWDAH_PHP="$directory/$program$1" "$2"
            ;;
        *)
            env -C crates/howdah-php PHP_INI_SCAN_DIR="$root/conf.d" HOWDAH_PHP="$root/native/php/$program" "$2"
            ;;
    esac
}

[ "$(id -u)" = 0 ] || {
    echo "test-php-roots: the tests run in other root directories, so run this script as the user root" >&2
    exit 1
}
# shellcheck disable=SC2046 # One argument for each name.
[ $# -gt 0 ] || set -- $(scripts/php-roots.sh --list)
scripts/php-roots.sh "$@"
mkdir -p "$results"
for name in "$@"; do
    export PHP_CONFIG="$roots/$name/php-config"
    cargo test -q -p howdah-php --no-run 2>"$results/$name.build" || {
        cat "$results/$name.build"
        failed="$failed $name"
        continue
    }
    # One line for each program: NAME PATH.
    cargo test -p howdah-php --no-run 2>&1 | sed -n 's/^  Executable .*(\(.*\/\(.*\)-[0-9a-f]*\))$/\2 \1/p' >"$results/$name.tests"
    while read -r test path; do
        case " ${TESTS:-$test} " in *" $test "*) ;; *) continue ;; esac
        run_test "$name" "$(realpath "$path")" >"$results/$name.$test" 2>&1 </dev/null || failed="$failed $name/$test"
        echo "$name $test: $(grep '^test result' "$results/$name.$test" || echo 'did not finish')"
        sed -n 's/^test \(.*\) \.\.\. FAILED$/    \1/p' "$results/$name.$test"
    done <"$results/$name.tests"
done
[ -z "$failed" ] || {
    echo "test-php-roots: these tests failed:$failed. Their output is in $results" >&2
    exit 1
}
