#!/usr/bin/env bash
# pythons.sh: CPython 3.14 and 3.15 for tests of Python stacks, which no release of Debian that we
# build on has. Takes the packages of Debian's forky by apt, with lists, state and cache of their
# own, and unpacks them below ${XDG_CACHE_HOME:-~/.cache}/fragscope/pythons: nothing is installed.
# They run with the C library of their suite. Prints their paths, parted by ':'.
# Needs: Debian's apt with a mirror in its sources, about 100 MB. Exit code: 0, 1 (one line says why).
set -euo pipefail
exec </dev/null

versions=(3.14 3.15)
suite=forky
place=${XDG_CACHE_HOME:-$HOME/.cache}/fragscope/pythons
fail() { echo "pythons: $*" >&2; exit 1; }

launchers() { printf '%s\n' "${versions[@]/#/$place/bin/python}" | paste -sd:; }

mirror() {
  sed -nE 's/^(URIs:|deb( \[[^]]*\])?) *([a-z]+:[^ ]+\/debian\/?)( .*)?$/\3/p' \
    $(ls /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null) | head -1
}

fetch() {
  local from
  from=$(mirror)
  [ -n "$from" ] || fail "no mirror of Debian in /etc/apt"
  rm -rf "$place"
  mkdir -p "$place"/{etc,state/lists/partial,cache/archives/partial,root,bin}
  touch "$place/state/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from $suite main" \
    >"$place/etc/sources.list"
  cat >"$place/apt.conf" <<END
Dir::Etc::sourcelist "$place/etc/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "$place/state";
Dir::State::status "$place/state/status";
Dir::Cache "$place/cache";
Debug::NoLocking "1";
APT::Keep-Downloaded-Packages "true";
END
  export APT_CONFIG=$place/apt.conf
  apt-get -q update >"$place/log.txt" 2>&1 || fail "$suite cannot be listed: see $place/log.txt"
  apt-get -qy --no-install-recommends --download-only install "${versions[@]/#/python}" \
    >>"$place/log.txt" 2>&1 || fail "$suite does not have them: see $place/log.txt"
  for package in "$place"/cache/archives/*.deb; do dpkg -x "$package" "$place/root"; done
}

write_launchers() {
  local root=$place/root version
  for version in "${versions[@]}"; do
    cat >"$place/bin/python$version" <<END
#!/bin/sh
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \\
    "$root/usr/bin/python$version" "\$@"
END
    chmod +x "$place/bin/python$version"
    "$place/bin/python$version" -c 'import ctypes' || fail "python$version does not run"
  done
  rm -rf "$place"/{state,cache}
}

if ! [ -x "$place/bin/python${versions[-1]}" ]; then
  fetch
  write_launchers
fi
launchers
