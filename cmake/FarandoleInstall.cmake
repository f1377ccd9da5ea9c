# The install tree, and the package that find_package(farandole) reads.
include_guard()
include(CMakePackageConfigHelpers)

target_include_directories(farandole PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS farandole EXPORT farandole-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(part core collectives ops/engine ops/gradients)
  install(DIRECTORY ${part}/include/farandole DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
if(FARANDOLE_HAVE_TRAINER)
  install(TARGETS farandole_trainer EXPORT farandole-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ops/trainer/include/farandole DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS farandole-train RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(FARANDOLE_BUILD_PROGRAMS)
  install(TARGETS farandole-bench farandole-schedule farandole-info RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(flavour ${FARANDOLE_MPI_FLAVOURS})
  install(TARGETS farandole_mpi_${flavour} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/farandole)
install(EXPORT farandole-targets NAMESPACE farandole:: DESTINATION ${package_directory})
configure_package_config_file(cmake/farandole-config.cmake.in farandole-config.cmake INSTALL_DESTINATION ${package_directory})
write_basic_package_version_file(farandole-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/farandole-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/farandole-config-version.cmake
        DESTINATION ${package_directory})

include(FarandolePkgConfig)
set(pkg_config_files ${CMAKE_CURRENT_BINARY_DIR}/farandole.pc)
farandole_write_pkg_config(${CMAKE_CURRENT_BINARY_DIR} farandole "${PROJECT_DESCRIPTION}" ${PROJECT_VERSION}
                           farandole "")
if(FARANDOLE_HAVE_TRAINER)
  farandole_write_pkg_config(${CMAKE_CURRENT_BINARY_DIR} farandole-trainer
                             "Training on mirrored replicas, with Farandole" ${PROJECT_VERSION}
                             farandole_trainer "farandole = ${PROJECT_VERSION}")
  list(APPEND pkg_config_files ${CMAKE_CURRENT_BINARY_DIR}/farandole-trainer.pc)
  farandole_install_program_pages(farandole-train)
endif()
install(FILES ${pkg_config_files} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(FARANDOLE_BUILD_PROGRAMS)
  farandole_install_program_pages(farandole-bench farandole-schedule farandole-info)
endif()
