#!/usr/bin/env bash
# Says at once that a measurement was asked for, or that it came to nothing. usage: check_state.sh queued|failed
# Environment: GITHUB_REPOSITORY, GH_TOKEN, HEAD_SHA.
set -euo pipefail
[[ "${HEAD_SHA:?}" =~ ^[0-9a-f]{40}$ ]] || { echo "HEAD_SHA: '$HEAD_SHA' is no commit" >&2; exit 2; }
case "${1:-}" in
  queued) state=(-f status=queued) ;;
  failed)
    state=(-f status=completed -f conclusion=neutral -f 'output[title]=The pull request could not be measured'
      -f 'output[summary]=See the log of the workflow pr-bench.')
    ;;
  *) echo "usage: check_state.sh queued|failed" >&2; exit 2 ;;
esac
gh api --silent --method POST "repos/${GITHUB_REPOSITORY:?}/check-runs" -f name=attnwatch -f "head_sha=$HEAD_SHA" \
  -f external_id=attnwatch "${state[@]}" || exit 3
