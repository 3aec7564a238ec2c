#!/usr/bin/env bash
# install_debian_packages.sh LIST: installs the packages of LIST (one a line) that dpkg does not have; nothing when all are there.
set -euo pipefail

list=$1
missing=()
while read -r package; do
  case $package in '' | '#'*) continue ;; esac
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed* ]] || missing+=("$package")
done <"$list"
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "$list: not installed: ${missing[*]}. Install them as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -qq --yes --no-install-recommends \
  -o APT::Keep-Downloaded-Packages=false "${missing[@]}" >/dev/null
