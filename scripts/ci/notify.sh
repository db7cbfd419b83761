#!/usr/bin/env bash
# Tells people of the night in OUT: what is new, what recovered, what did not run. Each event once, whenever it is started.
# Environment: OUT, ATTNWATCH_DB, SERVICES (a file as apprise reads it) or ATTNWATCH_NOTIFY (addresses).
set -euo pipefail
cd "$(dirname "$0")/../.."
args=()
# Without a heartbeat the night did not end, and there is no report to ask for coverage.
[ ! -e "${OUT:?}/heartbeat.json" ] || args+=("$OUT/night.json")
[ -z "${SERVICES:-}" ] || args+=(--config "$SERVICES")
exec "${ATTNWATCH:-.venv/bin/attnwatch}" notify "${args[@]}"
