#!/usr/bin/env bash
# One night on a machine of our own. Ends with 1 only for new confirmed regressions, with 3 where it could not measure.
# Environment: SUITE, BUDGET, ATTNWATCH_DB (a path on the machine, or a URL), OUT (the folder for what is kept).
set -uo pipefail
cd "$(dirname "$0")/../.."
out="${OUT:-nightly-out}"
attnwatch="${ATTNWATCH:-.venv/bin/attnwatch}"
mkdir -p "$out"
"$attnwatch" nightly --suite "${SUITE:-nightly}" --budget "${BUDGET:-2h}" --reports "$out/reports" --json >"$out/night.json"
code=$?
if [ "$code" -le 1 ]; then
  # The heartbeat: written only where something was measured and judged.
  printf '{"finished_at": %s, "exit": %s}\n' "$(date +%s)" "$code" >"$out/heartbeat.json"
  "$attnwatch" comment "$out/night.json" --dry-run --annotations ${GITHUB_STEP_SUMMARY:+--summary} >"$out/night.md"
  [ $? -le 1 ] || code=3
  "$attnwatch" db backup --force "$out/store.db" >&2 || echo "::warning title=attnwatch::the store was not backed up"
fi
exit "$code"
