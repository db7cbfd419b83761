#!/usr/bin/env bash
# Measures a pull request, base and head interleaved, and writes what the comment is made of. Has no secrets and no
# rights: all of this is the pull request's own code. Environment: NUMBER, HEAD_SHA, BASE_REF (a commit or branch),
# SUITE, WHERE, BUDGET, DEVICE, OUT. Ends with 0 where a report was written, whatever it says.
set -euo pipefail
cd "${SOURCE:-$(dirname "$0")/../..}"
out="${OUT:?}"
attnwatch="${ATTNWATCH:-.venv/bin/attnwatch}"
number="${NUMBER:?}" head="${HEAD_SHA:?}"
[[ "$number" =~ ^[0-9]+$ ]] || { echo "NUMBER: '$number' is no number" >&2; exit 2; }
[[ "$head" =~ ^[0-9a-f]{40}$ ]] || { echo "HEAD_SHA: '$head' is no commit" >&2; exit 2; }
base="$(git merge-base "${BASE_REF:?}" "$head")"
mkdir -p "$out"
printf '{"number": %s, "sha": "%s"}\n' "$number" "$head" >"$out/claim.json"

# Only cases that the change can touch, the likeliest first; where there are none, the report says so.
args=(--base "$base" --head "$head" --affected --suite "${SUITE:-full}" --budget "${BUDGET:-20m}" --device "${DEVICE:-cpu}" --json)
[ -z "${WHERE:-}" ] || args+=(--where "$WHERE")
code=0
"$attnwatch" compare "${args[@]}" >"$out/report.json" || code=$?
[ "$code" -le 1 ] || exit "$code"

# Where Triton kernels changed: registers, spills, occupancy and instructions of both, compiled without a GPU into the
# same report. What cannot be compiled does not cost what was measured.
if [ -z "${WHERE:-}" ] && ! git diff --quiet "$base" "$head" -- ':(glob)kernels/**/triton_*.py' kernels/triton_support; then
  code=0
  "$attnwatch" static --base "$base" --head "$head" --add-to "$out/report.json" >&2 || code=$?
  [ "$code" -le 1 ] || echo "::warning title=attnwatch::the kernels were not compiled"
fi
