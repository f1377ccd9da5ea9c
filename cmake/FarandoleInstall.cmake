# SPDX-License-Identifier: Apache-2.0
# Declares the install tree and the package for find_package(farandole). docs/packaging.md lists the components.
include_guard()
include(CMakePackageConfigHelpers)

target_include_directories(farandole PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS farandole EXPORT farandole-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
foreach(part core collectives ops/engine ops/gradients)
  install(DIRECTORY ${part}/include/farandole DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
endforeach()
install(FILES ${FARANDOLE_PLUGIN_BUILD_HEADER} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/farandole/sdk COMPONENT development)
if(FARANDOLE_HAVE_TRAINER)
  install(TARGETS farandole_trainer EXPORT farandole-trainer-targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT trainer NAMELINK_COMPONENT trainer_development)
  install(DIRECTORY ops/trainer/include/farandole DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT trainer_development)
  install(TARGETS farandole-train RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT trainer)
endif()
if(FARANDOLE_BUILD_PROGRAMS)
  install(TARGETS farandole-bench farandole-schedule farandole-info
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
endif()
foreach(flavour ${FARANDOLE_MPI_FLAVOURS})
  install(TARGETS farandole_mpi_${flavour}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/${FARANDOLE_PLUGIN_DIRECTORY_NAME} COMPONENT mpi_${flavour})
endforeach()
if(TARGET farandole_cuda)
  install(TARGETS farandole_cuda
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/${FARANDOLE_PLUGIN_DIRECTORY_NAME} COMPONENT cuda)
endif()
if(TARGET farandole_trainer_cuda)
  install(TARGETS farandole_trainer_cuda
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/${FARANDOLE_PLUGIN_DIRECTORY_NAME} COMPONENT trainer_cuda)
endif()
install(FILES LICENSE NOTICE THIRD_PARTY_LICENSES DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/farandole)
install(EXPORT farandole-targets NAMESPACE farandole:: DESTINATION ${package_directory} COMPONENT development)
if(FARANDOLE_HAVE_TRAINER)
  install(EXPORT farandole-trainer-targets NAMESPACE farandole:: DESTINATION ${package_directory}
          COMPONENT trainer_development)
endif()
configure_package_config_file(cmake/farandole-config.cmake.in farandole-config.cmake INSTALL_DESTINATION ${package_directory})
write_basic_package_version_file(farandole-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/farandole-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/farandole-config-version.cmake
        DESTINATION ${package_directory} COMPONENT development)

include(FarandolePkgConfig)
farandole_write_pkg_config(${CMAKE_CURRENT_BINARY_DIR} farandole "${PROJECT_DESCRIPTION}" ${PROJECT_VERSION}
                           farandole "")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/farandole.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)
if(FARANDOLE_HAVE_TRAINER)
  farandole_write_pkg_config(${CMAKE_CURRENT_BINARY_DIR} farandole-trainer
                             "Training on mirrored replicas, with Farandole" ${PROJECT_VERSION}
                             farandole_trainer "farandole = ${PROJECT_VERSION}")
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/farandole-trainer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT trainer_development)
  farandole_install_program_pages(trainer farandole-train)
endif()
if(FARANDOLE_BUILD_PROGRAMS)
  farandole_install_program_pages(programs farandole-bench farandole-schedule farandole-info)
endif()
