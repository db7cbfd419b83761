#!/usr/bin/env bash
# Everything that only a GPU can tell, in one go: scripts/gpu_check.sh [OUT] [--dry-run] [--budget SECONDS]
# No network. Needs python3 with torch, triton and numpy; nvidia-ml-py adds clocks and throttle reasons.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" scripts/gpu_check.py "$@"
