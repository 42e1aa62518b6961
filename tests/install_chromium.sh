#!/bin/sh
# Chromium for the browser tests, from Debian's packages. Where that is impossible (another system, no root, no
# network) this says so and goes on: the tests then say that the browser tests did not run.
for name in chromium chromium-browser google-chrome chrome; do
    if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if [ -n "$CHROMIUM" ]; then exit 0; fi
cannot() { echo "No Chromium: $1. The browser tests will not run." >&2; exit 0; }
command -v apt-get >/dev/null 2>&1 || cannot "this system has no apt-get; install it by hand"
if [ "$(id -u)" -eq 0 ]; then as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then as_root="sudo -n"
else cannot "installing it needs root; run: sudo apt-get install chromium"; fi
echo "Installing Chromium for the browser tests (once)"
patience="-o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=60"
install="$as_root env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get $patience -qq -y"
$install install --no-install-recommends chromium >/dev/null 2>&1 ||
    { $install update >/dev/null 2>&1 && $install install --no-install-recommends chromium >/dev/null 2>&1; } ||
    cannot "apt-get could not install it"
