#!/bin/bash
# Fuzzes all targets, which together take HOURS of wall-clock time, and prints one line for each target: runs, inputs
# that reached new code, findings.
#
#   scripts/fuzz.sh HOURS [TARGET...]        HOURS may be a fraction: 0.1 is six minutes
#
# Each target starts from its corpus in fuzz/corpus and from the inputs that earlier runs of this script found
# (target/fuzz/found/TARGET). Findings are written to target/fuzz/findings/TARGET. The script exits with 1 if there are
# findings, and with 2 if a tool is missing. It needs a nightly compiler and cargo-fuzz. The variable JOBS sets how many
# targets run at the same time, by default as many as there are cores.
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
    echo 'fuzz: there is no nightly compiler; to install it, run: rustup toolchain install nightly --profile minimal' >&2; exit 2; }
cargo fuzz --version >/dev/null 2>&1 || {
    echo 'fuzz: cargo-fuzz is missing; to install it, run: cargo install cargo-fuzz' >&2; exit 2; }
for target in "$@"; do
    [ -d "fuzz/corpus/$target" ] || { echo "fuzz: unknown target '$target': there is no fuzz/corpus/$target" >&2; exit 2; }
done

seconds=$(awk -v h="$hours" -v j="$jobs" -v n=$# 'BEGIN {
    s = int(h * 3600 * (j < n ? j : n) / n); print s < 1 ? 1 : s }')
mkdir -p "$out/log"
CARGO_TARGET_DIR=$out/build cargo +nightly fuzz build >"$out/log/build" 2>&1 || {
    tail -30 "$out/log/build" >&2; echo 'fuzz: the targets could not be built' >&2; exit 2; }
echo "fuzz: $# targets, $jobs at the same time, $seconds s each" >&2

run_one() { # Runs libFuzzer on TARGET for its share of the time: run_one TARGET
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
