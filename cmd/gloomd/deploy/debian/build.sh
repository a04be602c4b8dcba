#!/bin/sh
# Builds a Debian package of what make install installs, with units and the
# configuration of gloomd: build.sh BIN OUT. BIN holds the programs, OUT
# receives the package. Needs dpkg-deb.
set -eu
bin=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../../../..
version=$("$bin/gloomd" --version | cut -d' ' -f2)
# A Debian version begins with a digit.
case $version in v*) version=${version#v} ;; esac
case $version in [0-9]*) ;; *) version=0~$version ;; esac
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

make --no-print-directory -C "$top" install BIN="$bin" DESTDIR="$root" PREFIX=/usr ZSH=/usr/share/zsh/vendor-completions UNITS=/lib/systemd/system
gzip -9n "$root"/usr/share/man/man1/*
install -d "$root/etc/gloom" "$root/DEBIAN" "$root/usr/share/doc/gloom"
install -m 644 "$here/../../gloomd.toml" "$root/etc/gloom/gloomd.toml"
install -m 644 "$here/../alerts.yml" "$here/../dashboard.json" "$top/wire/PROTOCOL.md" \
    "$here/../systemd/sockets.conf" "$top/LICENSE" "$root/usr/share/doc/gloom/"

echo /etc/gloom/gloomd.toml > "$root/DEBIAN/conffiles"
cat > "$root/DEBIAN/control" <<CONTROL
Package: gloom
Version: $version
Architecture: $arch
Maintainer: The Gloom authors <gloom@localhost>
Section: net
Priority: optional
Installed-Size: $(du -sk "$root" | cut -f1)
Description: job broker in memory, with a small protocol
 Gloom hands jobs from submitters to idle workers on any number of hosts, best
 priority first, and carries the answers back. It keeps jobs in memory only.
CONTROL
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$root/DEBIAN/"
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$root" "$out/gloom_${version}_${arch}.deb"
