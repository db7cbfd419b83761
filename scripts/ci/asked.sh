#!/usr/bin/env bash
# What a collaborator last asked of this pull request with "/attnwatch bench [--where EXPR]": the line where=EXPR for
# GITHUB_OUTPUT, empty where nobody asked. Environment: GITHUB_REPOSITORY, GH_TOKEN, NUMBER.
set -euo pipefail
[[ "${NUMBER:?}" =~ ^[0-9]+$ ]] || { echo "NUMBER: '$NUMBER' is no number" >&2; exit 2; }
asked="$(gh api --paginate "repos/${GITHUB_REPOSITORY:?}/issues/$NUMBER/comments?per_page=100" --jq '
  .[] | select(.author_association | IN("OWNER", "MEMBER", "COLLABORATOR")) | .body | split("\n")[0]
  | rtrimstr("\r") | select(test("^/attnwatch bench( |$)"))' | tail -n 1)" || exit 3
where=""
if [[ "$asked" =~ ^/attnwatch\ bench\ +--where\ +(.{1,500})$ ]]; then
  where="${BASH_REMATCH[1]}"
elif [ -n "$asked" ] && ! [[ "$asked" =~ ^/attnwatch\ bench\ *$ ]]; then
  echo "not understood: write /attnwatch bench, or /attnwatch bench --where EXPR" >&2
fi
printf 'where=%s\n' "$where"
