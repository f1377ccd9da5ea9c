# SPDX-License-Identifier: Apache-2.0
# The Python package needs no interpreter to be built, its tests do.
#
# Sets FARANDOLE_HAVE_PYTHON, and FARANDOLE_NO_PYTHON (why not) if it is OFF; Python_EXECUTABLE if there is one. Another
# interpreter is named by -DPython_EXECUTABLE=/path/to/python. FARANDOLE_TENSORFLOW_VERSION is that of its TensorFlow, for
# which the package then holds the op library; empty if there is none.
include_guard()

set(FARANDOLE_HAVE_PYTHON ON)
set(FARANDOLE_NO_PYTHON "")
if(FARANDOLE_WITH_PYTHON STREQUAL OFF)
  set(FARANDOLE_NO_PYTHON "FARANDOLE_WITH_PYTHON=OFF")
elseif(FARANDOLE_SANITIZE AND FARANDOLE_WITH_PYTHON STREQUAL AUTO)
  # Python itself is not built with the sanitizers, whose libraries must come first in a process.
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
  # Isolated (-I): while pip builds a wheel this sees the environment that the wheel is for.
  execute_process(COMMAND ${Python_EXECUTABLE} -I -c "import tensorflow as tf; print(tf.version.VERSION)"
                  OUTPUT_VARIABLE FARANDOLE_TENSORFLOW_VERSION ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(FARANDOLE_WITH_TENSORFLOW STREQUAL ON AND NOT FARANDOLE_TENSORFLOW_VERSION)
  message(FATAL_ERROR "FARANDOLE_WITH_TENSORFLOW=ON, but ${Python_EXECUTABLE} cannot import tensorflow; name another "
                      "interpreter by -DPython_EXECUTABLE=/path/to/python, or use AUTO: the ops are then built at the first "
                      "import.")
endif()
