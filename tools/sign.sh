#!/usr/bin/env bash
# Write a detached OpenPGP signature of a file beside it, and verify it:
#   tools/sign.sh KEYID FILE      writes FILE.asc
#   tools/sign.sh --check KEYID   only looks whether gpg has the secret key
set -euo pipefail
[ $# = 2 ] || { echo "usage: tools/sign.sh KEYID FILE, or tools/sign.sh --check KEYID" >&2; exit 2; }
command -v gpg >/dev/null || { echo "There is no gpg, which signs. Install it (gnupg)." >&2; exit 2; }
key=$1
[ "$1" != --check ] || key=$2
# In the form of programs: the first key that the name stands for, and the fingerprint of what signs.
if ! gpg --batch --with-colons --list-secret-keys "$key" 2>/dev/null | grep -q '^sec:'; then
    echo "gpg has no secret key $key. Name one that gpg --list-secret-keys shows." >&2
    exit 2
fi
[ "$1" != --check ] || exit 0
gpg --batch --yes --armor --local-user "$key" --output "$2.asc" --detach-sign "$2"
gpg --batch --quiet --verify "$2.asc" "$2"
