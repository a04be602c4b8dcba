#!/bin/sh
# Builds a Debian package of gloomd, gloom and gloom-bench: build.sh BIN OUT
# BIN holds the programs, OUT receives the package. Needs dpkg-deb.
set -eu
bin=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
version=$("$bin/gloomd" --version | cut -d' ' -f2)
# A Debian version begins with a digit.
case $version in v*) version=${version#v} ;; esac
case $version in [0-9]*) ;; *) version=0~$version ;; esac
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

install -d "$root/usr/bin" "$root/etc/gloom" "$root/lib/systemd/system" "$root/DEBIAN" \
    "$root/usr/share/doc/gloom" "$root/usr/share/man/man1" \
    "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
    "$root/usr/share/fish/vendor_completions.d"
install -m 755 "$bin/gloomd" "$bin/gloom" "$bin/gloom-bench" "$root/usr/bin/"
install -m 644 "$here/../../gloomd.toml" "$root/etc/gloom/gloomd.toml"
install -m 644 "$here"/../systemd/*.service "$here"/../systemd/*.socket "$root/lib/systemd/system/"
install -m 644 "$here/../alerts.yml" "$here/../dashboard.json" "$here/../../../../wire/PROTOCOL.md" \
    "$here/../systemd/sockets.conf" "$here/../../../../LICENSE" "$root/usr/share/doc/gloom/"
for p in gloom gloomd; do
    "$bin/$p" completion bash > "$root/usr/share/bash-completion/completions/$p"
    "$bin/$p" completion zsh > "$root/usr/share/zsh/vendor-completions/_$p"
    "$bin/$p" completion fish > "$root/usr/share/fish/vendor_completions.d/$p.fish"
done
"$bin/gloom" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*

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
cat > "$root/DEBIAN/postinst" <<'POST'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl enable gloomd.service
    if [ -n "$2" ]; then systemctl try-restart gloomd.service; else systemctl start gloomd.service; fi
fi
POST
cat > "$root/DEBIAN/prerm" <<'PRERM'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now gloomd.service
fi
PRERM
cat > "$root/DEBIAN/postrm" <<'POSTRM'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
POSTRM
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm" "$root/DEBIAN/postrm"
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$root" "$out/gloom_${version}_${arch}.deb"
