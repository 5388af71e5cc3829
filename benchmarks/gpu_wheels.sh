#!/bin/sh
# Collects wheels for benchmarks/gpu.py on a machine without a package registry:
#
#     benchmarks/gpu_wheels.sh 3.12 FOLDER [PACKAGE...]
#
# The first argument is the Python of that machine (Linux, x86-64). By default the packages are msgspec and networkx, the needed ones
# that images with torch, numpy, numba and scipy lack; name others, with versions if need be: numba llvmlite. What one package
# needs is not collected with it, and torch never is. Then, there: pip install --no-index --no-deps FOLDER/*.whl
set -eu
LIMIT=60 # MB of all together
if [ $# -lt 2 ]; then
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
version=$1 folder=$2
shift 2
[ $# -gt 0 ] || set -- msgspec networkx
for package in "$@"; do
    case $package in torch | torch[!a-z]*)
        echo "gpu_wheels.sh: $package is never collected; gpu.py runs with the torch of that machine" >&2
        exit 2
        ;;
    esac
done
platforms=$(for minor in 28 27 17; do printf -- '--platform manylinux_2_%s_x86_64 ' $minor; done)
mkdir -p "$folder"
# shellcheck disable=SC2086  # several words
"${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version "$version" --implementation cp $platforms --platform manylinux2014_x86_64 --dest "$folder" "$@"
bytes=$(cat "$folder"/*.whl | wc -c)
ls -l "$folder"
if [ "$bytes" -gt $((LIMIT * 1000000)) ]; then
    echo "gpu_wheels.sh: the wheels have $((bytes / 1000000)) MB, more than $LIMIT; name fewer packages, or older versions" >&2
    exit 1
fi
