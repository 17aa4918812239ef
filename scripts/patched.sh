#!/usr/bin/env bash
# Make the patched copy of a file that a study runs: `scripts/patched.sh NAME FOLDER` applies NAME.patch of
# benchmarks/studies/*/patches/ to a copy of the file that the patch names, and writes it to FOLDER/NAME.py. It fails if
# the patch no longer applies.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
patch="$(cd "$root" && ls benchmarks/studies/*/patches/"$1.patch")"
file="$(sed -n 's|^--- a/||p' "$root/$patch")"
# The copy is outside of any repository: within one, git apply can silently skip a file.
temporary="$(mktemp -d)"
trap 'rm -rf "$temporary"' EXIT
mkdir -p "$temporary/$(dirname "$file")" "$2"
cp "$root/$file" "$temporary/$file"
GIT_CEILING_DIRECTORIES="$(dirname "$temporary")" git -C "$temporary" apply "$root/$patch" || {
  echo "patched.sh: $patch does not apply to the current $file; update the patch" >&2
  exit 1
}
mv "$temporary/$file" "$2/$1.py"
