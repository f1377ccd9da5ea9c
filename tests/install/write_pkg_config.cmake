# SPDX-License-Identifier: Apache-2.0
# usage: cmake -DCMAKE_INSTALL_PREFIX=… -DCMAKE_INSTALL_LIBDIR=… -DCMAKE_INSTALL_INCLUDEDIR=… -DDIRECTORY=… -P FILE
# Writes DIRECTORY/farandole.pc as for an installation with these directories.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/FarandolePkgConfig.cmake)
farandole_write_pkg_config(${DIRECTORY} farandole "a library" 1.2.3 farandole "")
