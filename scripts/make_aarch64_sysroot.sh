#!/usr/bin/env bash
# Unpacks the libraries that a program for aarch64 needs besides the cross compiler, from Debian's packages for arm64, in
# build/aarch64-sysroot. It changes nothing of this system and needs no root: apt uses separate package lists, state and
# cache, and installs nothing.
#
#   scripts/make_aarch64_sysroot.sh     does nothing if the folder exists; remove it to make it again
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(libc6-dev libstdc++6 libexpected-dev libxxhash-dev libssl-dev libzstd-dev zlib1g-dev libcli11-dev
  libarchive-dev nlohmann-json3-dev libgtest-dev librapidcheck-dev)
sysroot=build/aarch64-sysroot
work="$PWD/build/aarch64-packages"

# Runs apt on the packages of the cross compiler's Debian release, verified by the keys that this system trusts.
private_apt() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root \
    -o Dir::State="$work/state" -o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" \
    -o Dir::Cache="$work/cache" -o Debug::NoLocking=1 "$@"
}

# Links that name a file by its whole path mean one of the sysroot, not of this system.
settle_links() {
  local link target
  find "$1" -type l -lname '/*' -print | while read -r link; do
    target="$(readlink "$link")"
    ln -sfnr "$1$target" "$link"
  done
}

main() {
  if [[ "$(cat "$sysroot/packages" 2>/dev/null || true)" == "${packages[*]}" ]]; then
    echo "aarch64 sysroot: there ($sysroot)"
    return
  fi
  rm -rf "$work" "$sysroot"
  mkdir -p "$work"/{state,lists/partial,cache/archives/partial} "$sysroot"
  : >"$work/status"
  private_apt update
  private_apt install --yes --no-install-recommends --download-only "${packages[@]}"
  local package
  for package in "$work"/cache/archives/*.deb; do dpkg-deb --extract "$package" "$sysroot"; done
  settle_links "$PWD/$sysroot"
  rm -rf "$work"
  echo "${packages[*]}" >"$sysroot/packages"
  echo "aarch64 sysroot: made ($sysroot, $(du -sh "$sysroot" | cut -f 1))"
}

main "$@"
