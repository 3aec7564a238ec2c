#!/usr/bin/env bash
# debian_root.sh DIR: what the agent needs of an aarch64 machine, in DIR: the libraries, headers and Python of this Debian for
# arm64, unpacked and not installed. cmake/Aarch64.cmake builds for it. DIR/packages has the packages with their source
# packages and versions, DIR/files the files of each. DIR/python runs its Python, under qemu-user. Does nothing if DIR is
# there: remove it for Debian's fixes.
set -euo pipefail

root=$(realpath -m "$1")
[[ -x $root/python ]] && exit 0

# Compilers and generators are this machine's.
packages=(libpython3-dev python3)
mapfile -t -O "${#packages[@]}" packages < <(grep -E '^(lib|rapidjson|zlib)' "$(dirname "$(realpath "$0")")/debian_packages.txt" |
  grep -vE '^lib(boost|google-perftools|rocksdb|spdlog|sqlite3)')

work=$root.work
rm -rf "$root" "$work"
mkdir -p "$root"/usr/{bin,lib,sbin} "$work"/{lists/partial,archives/partial}
for folder in bin lib sbin; do ln -s "usr/$folder" "$root/$folder"; done
: >"$work/status"
# Lists of its own: the machine's need not know that architecture.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
key="signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
cat >"$work/sources.list" <<END
deb [$key] http://deb.debian.org/debian $suite main
deb [$key] http://deb.debian.org/debian $suite-updates main
deb [$key] http://deb.debian.org/debian-security $suite-security main
END
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64
  -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/lists"
  -o "Dir::State::Status=$work/status" -o "Dir::Cache=$work" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" install --yes --download-only --no-install-recommends "${packages[@]}" >/dev/null

for package in "$work"/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar --extract --keep-directory-symlink --directory "$root"
  dpkg-deb --showformat='${Package} ${source:Package} ${source:Version}\n' --show "$package" | tee -a "$root/packages" |
    cut -d ' ' -f 1 >>"$root/files"
  dpkg-deb --fsys-tarfile "$package" | tar --list | sed -n 's|^\./\(.*[^/]\)$| /\1|p' >>"$root/files"
done
rm -rf "$work" "$root"/usr/share/{man,locale,perl}

# Links that name a place from the top would lead out of it.
find "$root" -type l -lname '/*' -printf '%p %l\n' | while read -r link target; do
  ln -sfn "$(realpath -ms --relative-to="$(dirname "$link")" "$root$target")" "$link"
done
ln -sf /usr/bin/protoc /usr/bin/grpc_*_plugin "$root/usr/bin/"
# torch reads there what the processor is, and qemu-user shows the one of this machine.
mkdir -p "$root/proc"
for processor in 0 1; do
  printf '%-16s: %s\n' processor "$processor" Features 'fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm asimddp' \
    'CPU implementer' 0x41 'CPU architecture' 8 'CPU variant' 0x3 'CPU part' 0xd0c 'CPU revision' 1
  echo
done >"$root/proc/cpuinfo"
printf '#!/bin/sh\nexec qemu-aarch64-static -cpu neoverse-n1 -L "%s" "%s/usr/bin/python3" "$@"\n' "$root" "$root" >"$root/python"
chmod +x "$root/python"
