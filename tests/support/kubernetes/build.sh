#!/bin/sh
# build.sh VERSION DIRECTORY: kube-apiserver and kube-controller-manager from Kubernetes' own module.
set -eu
version=$1 directory=$2
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
if [ -x "$directory/kube-apiserver" ] && [ -x "$directory/kube-controller-manager" ]; then
  exit 0
fi
command -v go >/dev/null || { echo "kubernetes-tools needs Go." >&2; exit 1; }
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
cd "$source"
minor=${version#*.}
module=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
{
  echo "module build"
  grep '^go ' "$module/go.mod"
  echo "require k8s.io/kubernetes v$version"
  # Its parts are replaced by directories that the published module does not have; they are published by themselves too.
  sed -n 's|^[[:space:]]*\(k8s.io/[a-z0-9-]*\) v0.0.0\( // indirect\)\{0,1\}$|replace \1 => \1 v0.'"$minor"'|p' "$module/go.mod"
} > go.mod
printf 'package main\n\nimport _ "k8s.io/kubernetes/cmd/kube-apiserver/app"\n\nfunc main() {}\n' > main.go
go mod tidy -e >/dev/null 2>&1 || true
for program in kube-apiserver kube-controller-manager; do
  nice -n 19 go build -mod=mod -buildvcs=false -p 1 -o "$directory/$program" \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor%%.*}" \
    "k8s.io/kubernetes/cmd/$program"
done
