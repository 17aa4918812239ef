#!/usr/bin/env bash
# The copy of a file that a study runs: `scripts/patched.sh NAME FOLDER` leaves FOLDER/NAME.py, which is the file that
# benchmarks/patches/NAME.patch names with the patch in it, and fails where the file has changed too much for that.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
patch="benchmarks/patches/$1.patch"
file="$(sed -n 's|^--- a/||p' "$root/$patch")"
# aside, and as outside of a repository: within one, git apply may pass over a folder without a word
aside="$(mktemp -d)"
trap 'rm -rf "$aside"' EXIT
mkdir -p "$aside/$(dirname "$file")" "$2"
cp "$root/$file" "$aside/$file"
GIT_CEILING_DIRECTORIES="$(dirname "$aside")" git -C "$aside" apply "$root/$patch" || {
  echo "patched.sh: $patch does not apply to today's $file" >&2
  exit 1
}
mv "$aside/$file" "$2/$1.py"
