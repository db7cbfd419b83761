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

# Nothing that is measured changed (pages, or all of it was taken back): the report says so, and that is all.
if ! git diff --name-only -z "$base" "$head" | tr '\0' '\n' | grep -qvE '^(docs/|[^/]*\.md$|dashboard/|LICENSE$)'; then
  echo "nothing that is measured changed" >&2
  printf '{"base": "%s", "head": "%s", "cases": [], "unchanged": true}\n' "$base" "$head" >"$out/report.json"
  exit 0
fi

args=(--base "$base" --head "$head" --suite "${SUITE:-boundary}" --budget "${BUDGET:-20m}" --device "${DEVICE:-cpu}" --json)
[ -z "${WHERE:-}" ] || args+=(--where "$WHERE")
code=0
"$attnwatch" compare "${args[@]}" >"$out/report.json" || code=$?
[ "$code" -le 1 ] || exit "$code"
