#!/bin/sh
# build.sh VERSION KEDA DIRECTORY: kube-apiserver and kube-controller-manager from Kubernetes' own module, and KEDA's schemas.
set -eu
version=$1 keda=$2 directory=$3
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
# Where Go keeps the sources of a module.
sources() { (cd / && go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p'); }
if [ ! -d "$directory/keda" ] && command -v go >/dev/null; then
  schemas=$(sources "github.com/kedacore/keda/v2@v$keda")
  mkdir "$directory/keda"
  cp "$schemas"/config/crd/bases/keda.sh_*.yaml "$directory/keda/"
fi
if [ -x "$directory/kube-apiserver" ] && [ -x "$directory/kube-controller-manager" ]; then
  exit 0
fi
command -v go >/dev/null || { echo "kubernetes-tools needs Go." >&2; exit 1; }
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
cd "$source"
minor=${version#*.}
module=$(sources "k8s.io/kubernetes@v$version")
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
