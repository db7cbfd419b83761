#!/usr/bin/env bash
# One night on a machine of our own. Ends with 1 only for new confirmed regressions, with 3 where it could not measure.
# Environment: SUITE, BUDGET, ATTNWATCH_DB (a path on the machine, or a URL), OUT (the folder for what is kept);
# STATIC_GRID (pull_request or full: our kernels are compiled first, without a GPU, and judged too);
# TEXTFILE (a *.prom of node_exporter) and OTEL_EXPORTER_OTLP_ENDPOINT where somebody watches.
set -uo pipefail
cd "$(dirname "$0")/../.."
out="${OUT:-nightly-out}"
attnwatch="${ATTNWATCH:-.venv/bin/attnwatch}"
mkdir -p "$out"
# Compiled before anything is measured, so that the newest run of the store is the night's.
static=0
if [ -n "${STATIC_GRID:-}" ]; then
  "$attnwatch" static --grid "$STATIC_GRID" --reason nightly --reports "$out/reports/static" --json >"$out/static.json"
  static=$?
  [ "$static" -le 1 ] || echo "::warning title=attnwatch::the kernels were not compiled"
fi
"$attnwatch" nightly --suite "${SUITE:-nightly}" --budget "${BUDGET:-2h}" --reports "$out/reports" --json >"$out/night.json"
code=$?
if [ "$code" -le 1 ]; then
  # The heartbeat: written only where something was measured and judged.
  printf '{"finished_at": %s, "exit": %s}\n' "$(date +%s)" "$code" >"$out/heartbeat.json"
  "$attnwatch" comment "$out/night.json" --dry-run --annotations ${GITHUB_STEP_SUMMARY:+--summary} >"$out/night.md"
  [ $? -le 1 ] || code=3
  if [ -n "${STATIC_GRID:-}" ] && [ "$static" -le 1 ]; then
    "$attnwatch" comment "$out/static.json" --dry-run --annotations ${GITHUB_STEP_SUMMARY:+--summary} >"$out/static.md"
  fi
  # New spills turn a night red as a slower kernel does.
  if [ "$static" -eq 1 ] && [ "$code" -eq 0 ]; then code=1; fi
  "$attnwatch" db backup --force "$out/store.db" >&2 || echo "::warning title=attnwatch::the store was not backed up"
fi
# A monitor that is away is no reason to turn a night red.
if [ -n "${TEXTFILE:-}" ]; then
  "$attnwatch" metrics --textfile "$TEXTFILE" || echo "::warning title=attnwatch::no metrics were written"
fi
if [ "$code" -le 1 ] && [ -n "${OTEL_EXPORTER_OTLP_ENDPOINT:-}" ]; then
  "$attnwatch" traces || echo "::warning title=attnwatch::no trace was sent"
fi
exit "$code"
