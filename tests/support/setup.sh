# Sourced by tests/run and examples/run, in the root of the repository: packages and build folders.

if ! command -v nvcc >/dev/null && [[ -x /usr/local/cuda/bin/nvcc ]]; then
  export PATH="$PATH:/usr/local/cuda/bin"
fi

build_packages=(g++ meson ninja-build pkg-config libeigen3-dev doctest-dev librapidcheck-dev zlib1g-dev)

# install_missing PACKAGE...: leaves a machine that has them all, or that is no Debian, alone.
install_missing() {
  command -v dpkg-query >/dev/null || return 0
  local package missing=() as_root=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed* ]] ||
      missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  ((EUID == 0)) || as_root=(sudo)
  echo "installing ${missing[*]}" >&2
  "${as_root[@]}" apt-get update -qq >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}

has_gpu() {
  command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1
}

is_configured() {
  [[ -f build/$1/build.ninja ]]
}

# configure NAME OPTION...: makes build/NAME, or brings it to other options; Ninja itself notices
# changed build files.
configure() {
  local name=$1
  shift
  if is_configured "$name"; then
    [[ $(cat "build/$name/.options" 2>/dev/null) != "$*" ]] || return 0
    meson setup --reconfigure "build/$name" "$@" || return
  else
    meson setup "build/$name" "$@" || return
  fi
  echo "$*" >"build/$name/.options"
}
