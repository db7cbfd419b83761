#!/usr/bin/env bash
# What action.yml runs: two commits of another repository, each in an environment of its own, measured interleaved, and
# the commit between them that made it slower where it is asked for. Our packages live in a third environment, since
# their top-level names are generic. Environment: BASE, HEAD (commits), BUILD, WORK and CACHE as action_side.sh, BACKEND,
# SUITE, WHERE, BUDGET, DEVICE, BISECT (true or not), ACTION_PATH, OUT; RULER (an environment that has us already).
# Ends as `attnwatch compare` does.
set -euo pipefail
mkdir -p "${WORK:?}" "${OUT:?}"
export WORK RULER REPO BUILD="${BUILD:?}" CACHE="${CACHE:-$WORK/wheels}"
REPO="$PWD" WORK="$(realpath "$WORK")" out="$(realpath "$OUT")" CACHE="$(realpath -m "$CACHE")"
RULER="${RULER:-$WORK/ruler}"
side="$(realpath "$(dirname "$0")")/action_side.sh"
if ! [ -x "$RULER/bin/attnwatch" ]; then
  python3 -m venv "$RULER"
  "$RULER/bin/python" -m pip install -q --disable-pip-version-check -c "${ACTION_PATH:?}/constraints.txt" \
    "$ACTION_PATH[github]" "$ACTION_PATH/kernels"
fi
base="$("$side" "${BASE:?}")"
head="$("$side" "${HEAD:?}")"

suite="${SUITE:-smoke}"
[ ! -f "$suite" ] || suite="$(realpath "$suite")"
# Elsewhere: a module that lies in the working folder would be measured on both sides, in the place of what was built.
cd "$WORK"
args=(--suite "$suite" --json)
for backend in ${BACKEND:-}; do args+=(--backend "$backend"); done
[ -z "${WHERE:-}" ] || args+=(--where "$WHERE")
[ -z "${DEVICE:-}" ] || args+=(--device "$DEVICE")
code=0
"$RULER/bin/attnwatch" compare --base-python "$base" --head-python "$head" "${args[@]}" \
  ${BUDGET:+--budget "$BUDGET"} >"$out/report.json" || code=$?
if [ "$code" -eq 1 ] && [ "${BISECT:-false}" = true ]; then
  good="$(git -C "$REPO" merge-base "$BASE" "$HEAD")"
  if "$RULER/bin/attnwatch" bisect --repo "$REPO" --good "$good" --bad "$HEAD" --side "$side" \
    --report "$out/report.json" "${args[@]}" >"$out/bisect.json"; then
    # The comment and whoever reads the report find it there.
    "$RULER/bin/python" -c 'import json, sys
report, found = (json.load(open(path)) for path in sys.argv[1:])
json.dump({**report, "brought_by": found["found"]}, open(sys.argv[1], "w"), indent=1)' "$out/report.json" "$out/bisect.json"
  else
    rm -f "$out/bisect.json"
    echo "::warning title=attnwatch::the commit that made it slower was not found"
  fi
fi
if [ "$code" -le 1 ]; then
  "$RULER/bin/attnwatch" comment "$out/report.json" --dry-run --annotations ${GITHUB_STEP_SUMMARY:+--summary} \
    >"$out/comment.md" || [ $? -eq 1 ]
fi
exit "$code"
