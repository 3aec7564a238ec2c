# What goes into the server's wheel, packages and images: component "server". (The agent's is beside its sources.)
#
#   cmake --install build --component server --prefix DIR
#   DIR/bin/msprobe-server            finds its libraries at ../lib/msprobe-server, whatever the machine has
#   DIR/lib/msprobe-server/*.so.*     every shared library but those that each Linux has: libc, libstdc++, libgcc
#
# In a wheel bin/ is the wheel's scripts and lib/ its data, which pip puts into the same environment side by side.

if(TARGET msprobe-server)
  set(server_lib "lib/msprobe-server")
  set(server_bin bin)
  if(SKBUILD)
    set(server_bin "${SKBUILD_SCRIPTS_DIR}")
    set(server_lib "${SKBUILD_DATA_DIR}/lib/msprobe-server")
  endif()

  set_target_properties(msprobe-server PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/msprobe-server")
  # DT_RPATH, unlike DT_RUNPATH, is also used for the libraries of libraries.
  target_link_options(msprobe-server PRIVATE -Wl,--disable-new-dtags)
  install(TARGETS msprobe-server RUNTIME DESTINATION "${server_bin}" COMPONENT server)

  cmake_path(ABSOLUTE_PATH server_lib BASE_DIRECTORY "\${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE server_lib_absolute)
  install(CODE "set(server_binary \"$<TARGET_FILE:msprobe-server>\")\nset(server_lib \"${server_lib_absolute}\")"
          COMPONENT server)
  install(SCRIPT "${CMAKE_CURRENT_LIST_DIR}/BundleLibraries.cmake" COMPONENT server)
endif()
