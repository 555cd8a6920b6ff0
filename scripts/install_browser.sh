#!/bin/sh
# A browser for the tests of the pages, from Debian's packages where none is installed; "check" only looks.
found() {
  [ -n "${GEOMATT_BROWSER:-}" ] && return 0
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null 2>&1 && return 0
  done
  return 1
}
found && exit 0
[ "$1" = check ] && exit 1
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Installing chromium for the tests of the pages ..."
  { timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -qq -y --no-install-recommends \
      chromium fonts-dejavu-core; } >/dev/null 2>&1
  found && exit 0
fi
echo "There is no browser, and none can be installed: run apt-get install chromium as root," \
  "or name one in GEOMATT_BROWSER." >&2
[ -z "${GEOMATT_NEEDS_BROWSER:-}" ]  # where the tests of the pages must not be left out
