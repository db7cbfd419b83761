#!/usr/bin/env bash
# The same on a GPU of our own, for code that a maintainer approved at this very commit: in a container that is thrown
# away, without network, secrets, store or rights. Environment: as pr_bench.sh, CHECKOUT (the pull request's code), and
# IMAGE, which holds torch and attnwatch.
set -euo pipefail
out="$(realpath -m "${OUT:?}")"
image="${IMAGE:?}" checkout="$(realpath "${CHECKOUT:?}")"
[[ "$image" =~ @sha256:[0-9a-f]{64}$ ]] || { echo "IMAGE: '$image' is not pinned by digest" >&2; exit 2; }
[ "$(git -C "$checkout" rev-parse HEAD)" = "${HEAD_SHA:?}" ] || { echo "HEAD_SHA: another commit is checked out" >&2; exit 2; }
mkdir -p "$out"
# Named variables only: nothing else of this environment reaches the container.
exec docker run --rm --network=none --gpus all --cap-drop=ALL --security-opt=no-new-privileges --pids-limit=4096 \
  --read-only --tmpfs /tmp:exec,size=16g --tmpfs /build:exec,size=16g --user "$(id -u):$(id -g)" \
  --env HOME=/tmp --env NUMBER --env HEAD_SHA --env BASE_REF --env SUITE --env WHERE --env BUDGET \
  --env DEVICE=cuda:0 --env OUT=/out --env ATTNWATCH=attnwatch --env SOURCE=/build/source \
  --volume "$checkout:/source:ro" --volume "$out:/out" "$image" \
  bash -c 'git -c safe.directory="*" clone -q /source /build/source && exec /build/source/scripts/ci/pr_bench.sh'
