#!/bin/sh
# A broker, three workers and a job for each file of this repository, on unix
# sockets of its own: nothing is left behind, nothing outside is touched.
# Run it with make demo, which builds the programs first.
set -eu
cd "$(dirname "$0")/../.."
bin=${BIN:-.build}
case $bin in /*) ;; *) bin=$(pwd)/$bin ;; esac
for program in gloomd gloom; do
	[ -x "$bin/$program" ] || { echo "demo: $bin/$program is missing; run make build" >&2; exit 1; }
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/gloom-demo.XXXXXX")
pids=
finish() {
	status=$?
	trap - EXIT INT TERM HUP
	# shellcheck disable=SC2086 # a list of process ids
	[ -z "$pids" ] || kill $pids 2>/dev/null || :
	wait
	case $status in
	0 | 130 | 143) ;;
	*) cat "$dir"/*.log >&2 || : ;;
	esac
	rm -rf "$dir"
	exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

GLOOM_SUBMIT_ADDR=unix:$dir/submit GLOOM_WORKER_ADDR=unix:$dir/work GLOOM_HTTP_ADDR=unix:$dir/http
export GLOOM_SUBMIT_ADDR GLOOM_WORKER_ADDR GLOOM_HTTP_ADDR
unset GLOOM_TOKEN GLOOM_TLS GLOOM_TLS_CA GLOOM_TLS_CERT GLOOM_TLS_KEY GLOOM_CONFIG GLOOM_TOKEN_FILE \
	GLOOM_CONTEXT GLOOM_DOOR GLOOM_CLIENT_CERT GLOOM_CLIENT_KEY GLOOM_CLIENT_TOKEN_FILE
XDG_CONFIG_HOME=$dir # no contexts
export XDG_CONFIG_HOME

bold='' plain=''
if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ] && [ -z "${NO_COLOR:-}" ]; then
	bold=$(printf '\033[1m') plain=$(printf '\033[0m')
fi
step() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }

PATH=$bin:$PATH

# A copy of the files, so that nothing changes them while they are read. DEMO_TREE names a smaller
# tree.
mkdir "$dir/tree"
find "${DEMO_TREE:-.}" -type f -not -path '*/.*' -not -path '*/__pycache__/*' |
	tar -cf - -T - 2>"$dir/tar.log" | tar -xf - -C "$dir/tree"
cd "$dir/tree"
find . -type f >"$dir/files"

step '$ gloomd &'
gloomd --log-format console 2>"$dir/gloomd.log" &
pids="$pids $!"
gloom ping --wait 10s

# shellcheck disable=SC2016 # it is the command as one would type it
step '$ gloom work -j 2 sha256 -- sh -c '\''sha256sum "$(cat)"'\'' &     # three of them'
for n in 1 2 3; do
	# shellcheck disable=SC2016 # the inner shell expands it
	gloom work -j 2 sha256 -- sh -c 'sha256sum "$(cat)"' 2>"$dir/work$n.log" &
	pids="$pids $!"
done

step '$ find . -type f | gloom submit sha256 --lines -     # a job for every file'
gloom submit sha256 --lines "$dir/files" >"$dir/answers"
echo "$(wc -l <"$dir/answers") answers; the first ones:"
head -n 4 "$dir/answers" | cut -c 1-78

step '$ sha256sum --check answers     # are they right?'
sha256sum -c "$dir/answers" >"$dir/checked"
echo "$(grep -c ': OK$' "$dir/checked") of $(wc -l <"$dir/files") files match"

step '$ gloom ls     # what the broker counted'
gloom ls
echo
