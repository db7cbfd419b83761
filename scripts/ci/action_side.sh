#!/usr/bin/env bash
# One commit of another repository, built and installed into an environment of its own; prints its interpreter.
# usage: action_side.sh COMMIT
# Environment: REPO (their checkout), BUILD (a command that leaves wheels in $WHEELS), WORK (a folder to work in), CACHE
# (wheels by commit, torch, CUDA and architecture; below WORK by default), RULER (the environment that has us).
set -euo pipefail
repo="${REPO:?}" ruler="${RULER:?}"
mkdir -p "${WORK:?}" "${CACHE:-$WORK/wheels}"
work="$(realpath "$WORK")" cache="$(realpath "${CACHE:-$WORK/wheels}")"
commit="$(git -C "$repo" rev-parse --verify --quiet --end-of-options "${1:?usage: action_side.sh COMMIT}^{commit}")" ||
  { echo "$1 is no commit of $repo; fetch-depth: 0 fetches all of them" >&2; exit 2; }
# Where torch and all it needs lie, and our own packages where they are installed elsewhere; asked once.
if ! [ -e "$work/stack" ]; then
  (cd / && "$ruler/bin/python" -c 'import kernels, pathlib, sysconfig
print(*dict.fromkeys([sysconfig.get_path("purelib"), str(pathlib.Path(kernels.__file__).parents[1])]), sep="\n")') >"$work/packages"
  "$ruler/bin/python" -c 'import platform, sys, torch
print(f"{torch.__version__}-cuda{torch.version.cuda}-{platform.machine()}-py{sys.version_info[0]}{sys.version_info[1]}")' >"$work/stack.new"
  mv "$work/stack.new" "$work/stack"
fi
name="$commit-$(<"$work/stack")-$(printf %s "${BUILD:?}" | sha256sum | cut -c1-12)"
export WHEELS="$cache/$name"
if ! compgen -G "$WHEELS/*.whl" >/dev/null; then
  source="$work/source-$commit"
  rm -rf "$source" "$WHEELS.new"
  git -C "$repo" worktree prune
  git -C "$repo" worktree add -q --force --detach "$source" "$commit" >&2
  # Into place only when whole: a build that broke off leaves no half a cache.
  (cd "$source" && WHEELS="$WHEELS.new" PATH="$ruler/bin:$PATH" bash -euo pipefail -c "$BUILD") >&2
  compgen -G "$WHEELS.new/*.whl" >/dev/null || { echo "BUILD left no wheel in \$WHEELS" >&2; exit 2; }
  mv -T "$WHEELS.new" "$WHEELS"
  git -C "$repo" worktree remove --force "$source"
fi
side="$work/sides/$name"
if ! [ -e "$side/ready" ]; then
  rm -rf "$side"
  "$ruler/bin/python" -m venv --without-pip "$side"
  here="$("$side/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  cp "$work/packages" "$here/ruler.pth"
  "$ruler/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-index --target "$here" "$WHEELS"/*.whl >&2
  touch "$side/ready"
fi
echo "$side/bin/python"
