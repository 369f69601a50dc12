#!/usr/bin/env bash
# Prints the C++ compiler to build with: $CXX when set, else the first of g++ (12 or newer),
# g++-14, g++-13, g++-12, clang++ (14 or newer). Exit code 1: there is none.
set -u
if [ -n "${CXX:-}" ]; then echo "$CXX"; exit 0; fi
for candidate in g++ g++-14 g++-13 g++-12 clang++; do
  command -v "$candidate" >/dev/null 2>&1 || continue
  major=$("$candidate" -dumpversion 2>/dev/null | cut -d. -f1)
  oldest=12
  [ "$candidate" != clang++ ] || oldest=14
  if [ "${major:-0}" -ge "$oldest" ]; then echo "$candidate"; exit 0; fi
done
exit 1
