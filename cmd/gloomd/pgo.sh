#!/bin/sh
# Profiles gloomd under the shapes of the race, one after the other, into default.pgo, from which
# the compiler decides what to inline. make pgo builds the programs and runs this script.
set -eu
cd "$(dirname "$0")/../.."
bin=${BIN:-.build}
seconds=${SECONDS_EACH:-8}
dir=$(mktemp -d "${TMPDIR:-/tmp}/gloom-pgo.XXXXXX")
pid=
finish() {
	status=$?
	[ -z "$pid" ] || kill "$pid" 2>/dev/null || :
	wait
	[ $status -eq 0 ] || cat "$dir/log" >&2
	rm -rf "$dir"
	exit $status
}
trap finish EXIT

"$bin/gloomd" --submit-addr 127.0.0.1:0 --worker-addr 127.0.0.1:0 --submit-addr "unix:$dir/submit" --worker-addr "unix:$dir/work" \
	--http-addr "unix:$dir/http" --pprof --log-format json --log-level info 2>"$dir/log" &
pid=$!
at() { sed -n "s/.*\"$1\":\[\"\([0-9.:]*\)\"\].*/\1/p" "$dir/log" | head -n 1; }
tries=0
until grep -qs '"gloomd is ready"' "$dir/log"; do
	if [ $((tries += 1)) -gt 100 ] || ! kill -0 $pid; then
		echo "pgo: gloomd does not start" >&2
		exit 1
	fi
	sleep 0.1
done
tcp=$(at submit_also),$(at worker_also)
unix=unix:$dir/submit,unix:$dir/work

# profile NAME SERVER SHAPE [FLAG...] runs the shape again and again while a profile is taken.
profile() {
	name=$1 server=$2
	shift 2
	echo "pgo: $name" >&2
	curl -sf --unix-socket "$dir/http" "http://gloomd/debug/pprof/profile?seconds=$seconds" -o "$dir/$name.prof" &
	taken=$!
	while kill -0 $taken 2>/dev/null; do
		"$bin/gloom-bench" "$@" -q --rounds 1 --server "$server" >"$dir/out" || { cat "$dir/out" >&2; exit 1; }
	done
	wait $taken
}
profile tcp "$tcp" throughput --duration "${seconds}s"
profile unix "$unix" throughput --duration "${seconds}s"
profile prefetch "$tcp" prefetch --duration "${seconds}s"
profile backlog "$tcp" backlog --jobs 300000
"${GO:-go}" tool pprof -proto -output "$dir/all" "$dir"/*.prof >/dev/null
# The profile contains the path of the program. Replace it with the program's name, padded to the
# same length.
exe=$(cd "$bin" && pwd)/gloomd
zcat "$dir/all" | LC_ALL=C sed "s|$exe|$(printf "%-${#exe}s" gloomd)|g" | gzip -9n >cmd/gloomd/default.pgo
ls -l cmd/gloomd/default.pgo >&2
