#!/usr/bin/env bash
# What the tests need beside Python on a hosted Ubuntu runner: a browser under the name they look for, and npm packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
browser="${BROWSER_PATH:-/usr/bin/chromium}"
if ! [ -e "$browser" ]; then
  chrome="$(command -v google-chrome || command -v chromium-browser || true)"
  [ -n "$chrome" ] || { echo "no browser: install google-chrome or chromium" >&2; exit 3; }
  ${SUDO-sudo} ln -s "$chrome" "$browser"
fi
npm install --no-audit --no-fund --no-package-lock --prefix tests/ci/node
