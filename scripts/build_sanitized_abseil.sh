#!/usr/bin/env bash
# build_sanitized_abseil.sh DIR: the distribution's Abseil, from its source package, built for ThreadSanitizer as shared
# libraries in DIR/lib, whose names are the distribution's: with LD_LIBRARY_PATH=DIR/lib a program's gRPC uses them, too.
# Does nothing if DIR has that version. (The one in /usr/lib is not instrumented: the sanitizer would see the memory that
# an absl::Mutex guards, and not the lock.)
set -euo pipefail

prefix=$(realpath -m "$1")
version=$(dpkg-query --show --showformat='${source:Version}' libabsl-dev)
[[ -f $prefix/version && $(<"$prefix/version") == "$version" ]] && exit 0

work=$prefix.work
rm -rf "$prefix" "$work"
mkdir -p "$work/lists/partial" "$work/cache" "$work/build"
# Lists of its own: the machine's need not know of source packages.
{
  for suite in bookworm bookworm-updates; do
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main"
  done
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security bookworm-security main"
} >"$work/sources.list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
"${apt[@]}" update
(cd "$work" && "${apt[@]}" source --download-only "abseil=$version" && dpkg-source --extract ./*.dsc "$work/source" >/dev/null)

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
# C++17, as in the distribution: the type of string_view depends on it.
cmake -S "$work/source" -B "$work/build" -G Ninja --log-level=WARNING "${launcher[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_STANDARD=17 -DBUILD_SHARED_LIBS=ON -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_PREFIX="$prefix" \
  -DCMAKE_CXX_FLAGS='-fsanitize=thread -g1 -O1 -fno-omit-frame-pointer -Wno-tsan'
ninja -C "$work/build" -j "${JOBS:-$(nproc)}" --quiet install >/dev/null
rm -rf "$work"
echo "$version" >"$prefix/version"
