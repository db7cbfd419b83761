#!/usr/bin/env bash
# Alarms where the last heartbeat is too old. Runs where the nightly does not: a dead machine cannot call for help.
# One open issue per outage, closed by itself. Environment: GITHUB_REPOSITORY, GH_TOKEN, MAX_AGE_HOURS.
# Ends with 0 where all is well, 1 where the nightly did not run, 3 where GitHub cannot be asked.
set -euo pipefail
repo="${GITHUB_REPOSITORY:?}"
most=$(( ${MAX_AGE_HOURS:-26} * 3600 ))
title="The nightly benchmark does not run"

newest="$(gh api "repos/$repo/actions/artifacts?name=attnwatch-heartbeat&per_page=100" \
  --jq '[.artifacts[].created_at | fromdateiso8601] | max // 0')" || exit 3
open="$(gh issue list --repo "$repo" --state open --search "in:title \"$title\"" --json number,title \
  --jq "[.[] | select(.title == \"$title\") | .number] | min // \"\"")" || exit 3
age=$(( ${NOW:-$(date +%s)} - newest ))
if [ "$newest" -gt 0 ] && [ "$age" -le "$most" ]; then
  echo "last heartbeat $(( age / 3600 )) h ago"
  if [ -n "$open" ]; then
    gh issue close "$open" --repo "$repo" --comment "The nightly runs again." || exit 3
  fi
  exit 0
fi
when="no heartbeat was ever written"
[ "$newest" -eq 0 ] || when="the last heartbeat is $(( age / 3600 )) h old"
echo "::error title=attnwatch::$title: $when"
if [ -z "$open" ]; then
  gh issue create --repo "$repo" --title "$title" \
    --body "$when. Look at the runner, then start the workflow nightly-gpu by hand." || exit 3
fi
exit 1
