#!/bin/bash
# Fuzzes every target for HOURS of wall-clock time in all, as many side by side as there are cores,
# and prints one line for each: runs, inputs that reached new code, findings.
#
#   scripts/fuzz.sh HOURS [TARGET...]        HOURS may be a fraction: 0.1 is six minutes
#
# Each target starts from its corpus in fuzz/corpus and from what earlier runs of this script found
# (target/fuzz/found/TARGET, kept between runs). A finding is left in target/fuzz/findings/TARGET.
# Exits with 1 if there is one, with 2 if a tool is missing. Needs a nightly compiler and
# cargo-fuzz. JOBS is the number of targets side by side, by default that of the cores.
set -u
cd "$(dirname "$0")/.." || exit 2

hours=${1:-}
case $hours in
'' | *[!0-9.]*) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
shift
[ $# -gt 0 ] || set -- $(sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | grep -v '^howdah-fuzz$')
jobs=${JOBS:-$(nproc)}
out=${CARGO_TARGET_DIR:-$PWD/target}/fuzz

cargo +nightly --version >/dev/null 2>&1 || {
    echo 'fuzz: no nightly compiler: rustup toolchain install nightly --profile minimal' >&2; exit 2; }
cargo fuzz --version >/dev/null 2>&1 || {
    echo 'fuzz: cargo-fuzz is missing: cargo install cargo-fuzz' >&2; exit 2; }
for target in "$@"; do
    [ -d "fuzz/corpus/$target" ] || { echo "fuzz: there is no target $target" >&2; exit 2; }
done

seconds=$(awk -v h="$hours" -v j="$jobs" -v n=$# 'BEGIN {
    s = int(h * 3600 * (j < n ? j : n) / n); print s < 1 ? 1 : s }')
mkdir -p "$out/log"
CARGO_TARGET_DIR=$out/build cargo +nightly fuzz build >"$out/log/build" 2>&1 || {
    tail -30 "$out/log/build" >&2; echo 'fuzz: the targets do not build' >&2; exit 2; }
echo "fuzz: $# targets, $jobs side by side, $seconds s each" >&2

run_one() { # TARGET: libFuzzer, for its share of the time
    mkdir -p "$out/found/$1" "$out/findings/$1"
    "$(find "$out/build" -path "*/release/$1" -type f | head -1)" \
        -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="$out/findings/$1/" "$out/found/$1" "fuzz/corpus/$1" >"$out/log/$1" 2>&1
}
export -f run_one
export out seconds
printf '%s\n' "$@" | xargs -P "$jobs" -I{} bash -c 'run_one {} || true'

status=0
printf '%-20s %12s %10s %9s\n' target runs 'new inputs' findings
for target in "$@"; do
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/log/$target")
    new=$(sed -n 's/^stat::new_units_added: *//p' "$out/log/$target")
    findings=$(find "$out/findings/$target" -type f | wc -l)
    [ "$findings" -eq 0 ] && [ -n "$runs" ] || status=1
    printf '%-20s %12s %10s %9s\n' "$target" "${runs:-none}" "${new:--}" "$findings"
done
[ $status -eq 0 ] || echo "fuzz: see $out/findings and $out/log" >&2
exit $status
