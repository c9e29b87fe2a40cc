#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks on a machine with a GPU: all parts, or those named, one after another; fails when one of them fails.
#
#   scripts/gpu_check.sh                                  build, test, sanitize, bench
#   scripts/gpu_check.sh build test                       these two
#   scripts/gpu_check.sh bench -- data=pack data.root=F   arguments after -- go to benchmarks/step/bench_step.py
#
# build compiles the kernels into a fresh cache, which the parts after it use, and prints the seconds that it took.
# PYTHON=... chooses the interpreter (default: the one of .venv, else python3).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
PYTHON="${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

build() {
    NUREC_LITE_CACHE=$(mktemp -d)
    export NUREC_LITE_CACHE
    trap 'rm -rf "$NUREC_LITE_CACHE"' EXIT
    local start=$EPOCHREALTIME
    "$PYTHON" -c 'from nurec_lite.native import ops; ops.load()' || return 1
    awk -v a="$start" -v b="$EPOCHREALTIME" -v n="$(nproc)" 'BEGIN { printf "built in %.1f s with %d cores\n", b - a, n }'
}

run_tests() {
    local processes
    processes=$(nproc)
    "$PYTHON" -m pytest -q -m gpu -n $((processes < 12 ? processes : 12))
}
sanitize() { "$PYTHON" scripts/sanitize.py; }
bench() { "$PYTHON" benchmarks/step/bench_step.py ${overrides[@]+"${overrides[@]}"}; }

parts=() overrides=()
while [ $# -gt 0 ]; do
    case "$1" in
        --) shift; overrides=("$@"); break ;;
        build | test | sanitize | bench) parts+=("$1"); shift ;;
        *) echo "error: '$1' is no part; take build, test, sanitize, bench" >&2; exit 2 ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(build test sanitize bench)

status=0
for part in "${parts[@]}"; do
    echo "== $part"
    "${part/#test/run_tests}" || { echo "== $part failed"; status=1; }
done
exit $status
