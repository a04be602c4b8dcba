#!/bin/sh
# Makes tokens for submitters, workers and watchers, unless the file exists, and the
# list of them that gloomd reads.
set -eu
umask 077
cd "$(dirname "$0")"
: > tokens
for scope in submit work watch; do
    [ -s $scope.token ] || head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > $scope.token
    printf '%s %s\n' "$(cat $scope.token)" $scope >> tokens
done
