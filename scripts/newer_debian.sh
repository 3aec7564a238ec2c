#!/usr/bin/env bash
# newer_debian.sh DIR COMMAND...: runs COMMAND, as root, in this checkout in a Debian with newer libraries than this one's:
# those of unstable, and gRPC and protobuf of experimental. It lies in DIR/root and has what debian_packages.txt and
# debian_packages_test.txt name. It is made if it is not there, and what was built in DIR goes then, but for DIR/ccache.
# Remove DIR/root for the libraries of the day.
set -euo pipefail

scripts=$(dirname "$(realpath "$0")")
top=$(dirname "$scripts")
dir=$(realpath -m "$1")
root=$dir/root
shift

if [[ ! -d $root ]]; then
  mkdir -p "$dir"
  # Headers of packages may be older than what was built with others.
  find "$dir" -mindepth 1 -maxdepth 1 ! -name ccache -exec rm -rf {} +
  packages=$(grep -hvE '^(#|clang|python3)' "$scripts"/debian_packages{,_test}.txt | paste -sd,)
  printf 'Package: src:grpc src:protobuf\nPin: release a=experimental\nPin-Priority: 990\n' >"$dir/preferences"
  # Mirrors may be copies that are some weeks old.
  mmdebstrap --quiet --variant=essential --include="$packages" --aptopt='Acquire::Check-Valid-Until "false"' \
    --setup-hook="install -D -m 644 '$dir/preferences' \"\$1/etc/apt/preferences.d/newer\"" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    unstable "$root.part" "deb http://deb.debian.org/debian "{unstable,experimental}" main"
  mkdir -p "$root.part$top"
  mv "$root.part" "$root"
  dpkg-query --root="$root" --show 'libabsl-dev' 'libgrpc++-dev' 'libprotobuf-dev' 'librocksdb-dev' 'g++'
fi

export CCACHE_DIR=$dir/ccache PATH=/usr/sbin:/usr/bin:/sbin:/bin top root
# shellcheck disable=SC2016 # it is expanded inside
exec unshare --mount --propagation private bash -ec '
  mount --rbind "$top" "$root$top"
  mount --rbind /dev "$root/dev"
  mount --rbind /proc "$root/proc"
  mount --rbind /tmp "$root/tmp"
  exec chroot "$root" bash -ec '\''cd "$top" && exec "$@"'\'' newer_debian "$@"' newer_debian "$@"
