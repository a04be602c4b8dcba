#!/bin/sh
# Fails if a hot function of default.pgo is not in the source under its name: the compiler silently
# ignores a function that it does not find.
set -eu
cd "$(dirname "$0")/../.."
for order in -flat -cum; do # those that are hot, and those that call what is hot
	"${GO:-go}" tool pprof -top $order -nodecount=80 "${1:-cmd/gloomd/default.pgo}" 2>/dev/null
done |
	sed -n 's/\[.*\]//; s/ (.*inline)$//; s/\.func[0-9.]*$//; s,^.* gloom/\([a-z/]*\)\.,\1 ,p' |
	sed 's/ (\*\(\w*\))\.\(\w*\).*/ \\(\\w+ \\*\1.*\\) \2/; t; s/ \(\w*\)\.\(\w*\)$/ \\(\\w+ \1.*\\) \2/' | {
	found=0
	while read -r dir name; do
		grep -qE "^func ${name}[[(]" "$dir"/*.go || { echo "default.pgo: $dir has no function $name now; make pgo"; exit 1; }
		found=$((found + 1))
	done
	[ $found -gt 10 ] || { echo "default.pgo cannot be read, or has few functions of gloom"; exit 1; }
}
