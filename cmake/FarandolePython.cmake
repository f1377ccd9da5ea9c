# SPDX-License-Identifier: Apache-2.0
# Decides whether the Python package is built, and finds an interpreter. Only the tests of the package need an
# interpreter.
#
# Sets FARANDOLE_HAVE_PYTHON; FARANDOLE_NO_PYTHON, the reason if FARANDOLE_HAVE_PYTHON is OFF; and Python_EXECUTABLE if
# there is an interpreter. -DPython_EXECUTABLE=/path/to/python chooses another one. FARANDOLE_TENSORFLOW_VERSION is the
# version of the interpreter's TensorFlow, for which the package gets the op library; empty without TensorFlow.
include_guard()

set(FARANDOLE_HAVE_PYTHON ON)
set(FARANDOLE_NO_PYTHON "")
if(FARANDOLE_WITH_PYTHON STREQUAL OFF)
  set(FARANDOLE_NO_PYTHON "FARANDOLE_WITH_PYTHON=OFF")
elseif(FARANDOLE_SANITIZE AND FARANDOLE_WITH_PYTHON STREQUAL AUTO)
  # A sanitizer's library must be loaded first in a process, and Python is not built with the sanitizers.
  set(FARANDOLE_NO_PYTHON "FARANDOLE_SANITIZE=${FARANDOLE_SANITIZE}")
endif()
if(FARANDOLE_NO_PYTHON)
  set(FARANDOLE_HAVE_PYTHON OFF)
else()
  set(Python_FIND_VIRTUALENV FIRST)
  find_package(Python 3.9 QUIET COMPONENTS Interpreter)
  if(NOT Python_FOUND AND FARANDOLE_WITH_PYTHON STREQUAL ON AND FARANDOLE_BUILD_TESTS)
    message(FATAL_ERROR "FARANDOLE_WITH_PYTHON=ON, but no Python >= 3.9 was found for the tests; install one, name it by "
                        "-DPython_EXECUTABLE=/path/to/python, or set FARANDOLE_BUILD_TESTS=OFF.")
  endif()
endif()

set(FARANDOLE_TENSORFLOW_VERSION "")
if(FARANDOLE_HAVE_PYTHON AND Python_FOUND AND NOT FARANDOLE_WITH_TENSORFLOW STREQUAL OFF)
  # Isolated (-I), so that the interpreter sees the environment that a wheel is for, also while pip builds the wheel.
  execute_process(COMMAND ${Python_EXECUTABLE} -I -c "import tensorflow as tf; print(tf.version.VERSION)"
                  OUTPUT_VARIABLE FARANDOLE_TENSORFLOW_VERSION ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(FARANDOLE_WITH_TENSORFLOW STREQUAL ON AND NOT FARANDOLE_TENSORFLOW_VERSION)
  message(FATAL_ERROR "FARANDOLE_WITH_TENSORFLOW=ON, but ${Python_EXECUTABLE} cannot import tensorflow; name another "
                      "interpreter by -DPython_EXECUTABLE=/path/to/python, or use AUTO: the ops are then built at the first "
                      "import.")
endif()
