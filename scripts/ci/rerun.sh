#!/usr/bin/env bash
# Measures the newest commit of a pull request again, in the same unprivileged workflow that measured it first.
# Environment: GITHUB_REPOSITORY, GH_TOKEN, NUMBER.
set -euo pipefail
repo="${GITHUB_REPOSITORY:?}"
[[ "${NUMBER:?}" =~ ^[0-9]+$ ]] || { echo "NUMBER: '$NUMBER' is no number" >&2; exit 2; }
sha="$(gh api "repos/$repo/pulls/$NUMBER" --jq .head.sha)" || exit 3
found="$(gh api "repos/$repo/actions/workflows/pr-bench.yml/runs?head_sha=$sha&event=pull_request&per_page=1" \
  --jq '.workflow_runs[] | "\(.id) \(.status)"')" || exit 3
[ -n "$found" ] || { echo "commit $sha was never measured; push it first" >&2; exit 2; }
read -r id status <<<"$found"
[ "$status" = completed ] || { echo "run $id is still at work; ask again when it has ended" >&2; exit 2; }
gh api --silent --method POST "repos/$repo/actions/runs/$id/rerun" || exit 3
HEAD_SHA="$sha" "$(dirname "$0")/check_state.sh" queued
