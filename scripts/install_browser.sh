#!/bin/sh
# A browser for the tests of the pages, from Debian's packages where none is installed; "check" only looks.
# Without a browser this fails where GEOMATT_NEEDS_BROWSER is set, as in continuous integration.
found() {
  [ -n "${GEOMATT_BROWSER:-}" ] && return 0
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null 2>&1 && return 0
  done
  return 1
}
install() {
  timeout 300 apt-get update -qq -o Acquire::Retries=3 &&
    DEBIAN_FRONTEND=noninteractive timeout 900 apt-get install -qq -y --no-install-recommends \
      -o Acquire::Retries=3 chromium fonts-dejavu-core
}
found && exit 0
[ "${1:-}" = check ] && exit 1
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  why="only root can install one, with apt-get"
else
  echo "Installing chromium for the tests of the pages ..."
  log=$(mktemp)
  install >"$log" 2>&1
  found && exit 0
  tail -n 20 "$log" >&2
  why="apt-get install chromium failed, see above"
fi
echo "There is no browser, and $why. Install Debian's package chromium, or name a browser in GEOMATT_BROWSER." >&2
if [ -n "${GEOMATT_NEEDS_BROWSER:-}" ]; then
  echo "The tests of the pages must not be left out here (GEOMATT_NEEDS_BROWSER is set)." >&2
  exit 1
fi
