#!/usr/bin/env bash
# Fetches the report that a run uploaded, as a zip that stays closed. Environment: GITHUB_REPOSITORY, GH_TOKEN, RUN_ID.
# usage: fetch_report.sh FILE
set -euo pipefail
file="${1:?usage: fetch_report.sh FILE}"
repo="${GITHUB_REPOSITORY:?}" run="${RUN_ID:?}"
[[ "$run" =~ ^[0-9]+$ ]] || { echo "RUN_ID: '$run' is no number" >&2; exit 2; }
found="$(gh api "repos/$repo/actions/runs/$run/artifacts?name=attnwatch-report&per_page=100" \
  --jq '.artifacts[] | select(.expired | not) | "\(.id) \(.size_in_bytes)"')" || exit 3
[ -n "$found" ] || { echo "run $run uploaded no report" >&2; exit 2; }
[ "$(wc -l <<<"$found")" -eq 1 ] || { echo "run $run uploaded more than one report" >&2; exit 2; }
read -r id size <<<"$found"
[ "$size" -le 16777216 ] || { echo "the report has $size bytes; 16 MiB are taken" >&2; exit 2; }
gh api "repos/$repo/actions/artifacts/$id/zip" >"$file" || exit 3
