#!/usr/bin/env bash
# What action.yml runs: two commits of another repository, each in an environment of its own, measured interleaved.
# Our packages live in a third one, since their top-level names are generic. Environment: BASE, HEAD (commits), BUILD (a
# command that leaves wheels in $WHEELS), BACKEND, SUITE, WHERE, BUDGET, DEVICE, ACTION_PATH, WORK (a folder to work in),
# CACHE (wheels by commit, torch, CUDA and architecture), OUT; RULER (an environment that has us already).
# Ends as `attnwatch compare` does.
set -euo pipefail
mkdir -p "${WORK:?}" "${OUT:?}" "${CACHE:-$WORK/wheels}"
work="$(realpath "$WORK")" out="$(realpath "$OUT")" cache="$(realpath "${CACHE:-$WORK/wheels}")"
ruler="${RULER:-$work/ruler}"
if ! [ -x "$ruler/bin/attnwatch" ]; then
  python3 -m venv "$ruler"
  "$ruler/bin/python" -m pip install -q --disable-pip-version-check -c "${ACTION_PATH:?}/constraints.txt" \
    "$ACTION_PATH[github]" "$ACTION_PATH/kernels"
fi
# Where torch and all it needs lie, and our own packages where they are installed elsewhere.
packages="$(cd / && "$ruler/bin/python" -c 'import kernels, pathlib, sysconfig
print(*dict.fromkeys([sysconfig.get_path("purelib"), str(pathlib.Path(kernels.__file__).parents[1])]), sep="\n")')"
stack="$("$ruler/bin/python" -c 'import platform, sys, torch
print(f"{torch.__version__}-cuda{torch.version.cuda}-{platform.machine()}-py{sys.version_info[0]}{sys.version_info[1]}")')"

side() { # side NAME COMMIT: its interpreter is $work/NAME/bin/python
  local name="$1" commit source="$work/source-$1"
  commit="$(git rev-parse --verify "$2^{commit}")"
  export WHEELS="$cache/$commit-$stack-$(printf %s "${BUILD:?}" | sha256sum | cut -c1-12)"
  if ! compgen -G "$WHEELS/*.whl" >/dev/null; then
    rm -rf "$source" "$WHEELS.new"
    git worktree prune
    git worktree add -q --force --detach "$source" "$commit"
    # Into place only when whole: a build that broke off leaves no half a cache.
    (cd "$source" && WHEELS="$WHEELS.new" PATH="$ruler/bin:$PATH" bash -euo pipefail -c "$BUILD") >&2
    compgen -G "$WHEELS.new/*.whl" >/dev/null || { echo "BUILD left no wheel in \$WHEELS" >&2; exit 2; }
    mv -T "$WHEELS.new" "$WHEELS"
    git worktree remove --force "$source"
  fi
  rm -rf "${work:?}/$name"
  "$ruler/bin/python" -m venv --without-pip "$work/$name"
  local here
  here="$("$work/$name/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  printf '%s\n' "$packages" >"$here/ruler.pth" # once for both sides
  "$ruler/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-index --target "$here" "$WHEELS"/*.whl
}
side base "${BASE:?}"
side head "${HEAD:?}"

suite="${SUITE:-smoke}"
[ ! -f "$suite" ] || suite="$(realpath "$suite")"
# Elsewhere: a module that lies in the working folder would be measured on both sides, in the place of what was built.
cd "$work"
args=(--base-python "$work/base/bin/python" --head-python "$work/head/bin/python" --suite "$suite" --json)
for backend in ${BACKEND:-}; do args+=(--backend "$backend"); done
[ -z "${WHERE:-}" ] || args+=(--where "$WHERE")
[ -z "${BUDGET:-}" ] || args+=(--budget "$BUDGET")
[ -z "${DEVICE:-}" ] || args+=(--device "$DEVICE")
code=0
"$ruler/bin/attnwatch" compare "${args[@]}" >"$out/report.json" || code=$?
if [ "$code" -le 1 ]; then
  "$ruler/bin/attnwatch" comment "$out/report.json" --dry-run --annotations ${GITHUB_STEP_SUMMARY:+--summary} \
    >"$out/comment.md" || [ $? -eq 1 ]
fi
exit "$code"
