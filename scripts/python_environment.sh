# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154  # setup.sh sets python_dir, scripts, tensorflow_needed and tensorflow_version
# Sourced by setup.sh. Installs what the Python tests need in the environment in `python_dir`.

# True if the environment's interpreter finds the modules.
has_modules() {
  "$python_dir/bin/python" -c \
    'import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))' "$@"
}

make_python_environment() {
  local pip=("$python_dir/bin/python" -m pip --disable-pip-version-check install -q)
  make_environment "$python_dir"
  if ! has_modules numpy ml_dtypes cloudpickle yaml; then
    echo "setup.sh: installing numpy in $python_dir"
    "${pip[@]}" numpy ml_dtypes cloudpickle pyyaml || { say 'no numpy for the Python tests, which will be skipped'; return 0; }
  fi
  if ! has_modules tensorflow; then
    echo "setup.sh: installing TensorFlow in $python_dir"
    "${pip[@]}" "$tensorflow_needed" || {
      [ -z "$tensorflow_version" ] || fail "there is no TensorFlow $tensorflow_version for $("$python_dir/bin/python" --version)"
      say "no $tensorflow_needed for $("$python_dir/bin/python" --version): its tests will be skipped"
      return 0
    }
  fi
  if ! has_modules tensorboard tf_keras; then
    echo "setup.sh: installing TensorBoard and tf-keras in $python_dir"
    local version
    # --no-deps: tf-keras would install the package tensorflow over tensorflow-cpu. Its other dependencies are
    # installed.
    if ! { version=$("$python_dir/bin/python" -c 'import tensorflow; print(tensorflow.__version__)' 2>/dev/null) &&
      "${pip[@]}" --no-deps "tf-keras==${version%.*}.*" && "${pip[@]}" tensorboard; }; then
      say 'no TensorBoard and tf-keras: their tests will be skipped'
    fi
  fi
}

install_torch() {
  "$python_dir/bin/python" "$scripts/install_torch.py" ||
    say 'no torch: the tests of the torch backend, and the comparison of the trainer with torch, will be skipped'
}
